"""The console script as tests call it: its path, the type of the `oarlock` fixture, clients that last."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

SCRIPT = Path(sys.executable).with_name("oarlock")


class Command(Protocol):
    """The fixture `oarlock`: runs the console script to its end. Options are those of subprocess.run."""

    def __call__(
        self, *words: str, timeout: float = 300, **options: Any
    ) -> subprocess.CompletedProcess[str]: ...


@contextmanager
def started(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs beside the test, killed at the end whatever the test finds."""
    client = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield client
    finally:
        client.kill()
        client.communicate()
