"""Programs as text, and what their tasks have printed."""

from __future__ import annotations

import textwrap
from pathlib import Path

from oarlock.records.run_folder import RunFolder

# Prints a line, then runs until it is asked to leave.
ENDLESS = """
import time
print("here I am", flush=True)
while True:
    time.sleep(0.05)
"""

# The same, but it ignores that it is asked to leave.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS


def write(path: Path, text: str) -> Path:
    """Write a program that is indented as the test around it."""
    path.write_text(textwrap.dedent(text))
    return path


def has_said(run: RunFolder, text: str) -> bool:
    """Whether any task has printed this."""
    return bool(who_said(run, text))


def who_said(run: RunFolder, text: str) -> set[str]:
    """The tasks that have printed this, in any generation."""
    logs = run.path.glob("logs/*/*.log")
    return {path.stem for path in logs if text in path.read_text(errors="replace")}
