"""The console script as tests call it: its path, the type of the `oarlock` fixture, clients that last."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from oarlock.engines.local import local_engine
from oarlock.records import runs

SCRIPT = Path(sys.executable).with_name("oarlock")
TRAINS_FOR = 280  # seconds at most


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


@contextmanager
def home_in(folder: Path) -> Iterator[Path]:
    """OARLOCK_HOME inside a folder that the tests of a module share. Whatever still runs there is killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OARLOCK_HOME", str(folder / "home"))
        yield folder
        for run in runs.all_runs():
            local_engine.stop(run, now=True)


def quiet_environment() -> dict[str, str]:
    """Without TensorFlow's notes. Imports are kept (`--warm`) for runs in the same environment only."""
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ.pop("PYTEST_CURRENT_TEST", None)
    return environ


def printed_by(folder: Path, *words: str | Path, deadline: float = TRAINS_FOR) -> str:
    """What a command of Oarlock prints that is run in `folder` and succeeds."""
    done = subprocess.run(
        [str(word) for word in (SCRIPT, *words)],
        cwd=folder,
        env=quiet_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
