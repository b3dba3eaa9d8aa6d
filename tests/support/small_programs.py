"""Programs as text, and waiting for what they do."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from oarlock.records.runs import RunFolder
from tests.support import waiting

SCRIPT = Path(sys.executable).with_name("oarlock")
DEADLINE = 60.0
T = TypeVar("T")

# Says that it is there, and goes on until it is told to leave.
ENDLESS = """
import time
print("here I am", flush=True)
while True:
    time.sleep(0.05)
"""

# The same, but it does not leave when it is asked to.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def eventually(done: Callable[[], T], what: str, seconds: float = DEADLINE) -> T:
    return waiting.eventually(done, what, seconds, every=0.02)


def has_said(run: RunFolder, text: str) -> bool:
    return bool(who_said(run, text))


def who_said(run: RunFolder, text: str) -> set[str]:
    logs = run.path.glob("logs/*/*.log")
    return {path.stem for path in logs if text in path.read_text(errors="replace")}
