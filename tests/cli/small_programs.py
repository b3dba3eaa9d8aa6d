"""Programs as text, and waiting for what they do."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from oarlock.runs import RunFolder

SCRIPT = Path(sys.executable).with_name("oarlock")
DEADLINE = 60.0

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


def eventually(done: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.02)


def has_said(run: RunFolder, text: str) -> bool:
    return any(text in path.read_text(errors="replace") for path in run.path.glob("logs/*/*.log"))
