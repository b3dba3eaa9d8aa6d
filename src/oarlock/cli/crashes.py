"""Turn an unexpected error into one line for the user, and a file with details for a bug report."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from oarlock import __version__
from oarlock.records import runs

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
_KEPT = 20  # files


def keep(problem: BaseException) -> str:
    """Write the file and return the line for the user, which names it. Only the user can read the file."""
    what = traceback.format_exception_only(type(problem), problem)[-1].strip().partition("\n")[0][:200]
    details = (
        f"oarlock {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n"
        f"{' '.join(without_values(sys.argv[1:]))}\n\n"
        f"{''.join(traceback.format_exception(type(problem), problem, problem.__traceback__))}"
    )
    for folder in (runs.home() / "crashes", Path(tempfile.gettempdir())):
        try:
            return f"a bug in Oarlock: {what}; please report it with {_write(folder, details)}"
        except OSError:
            continue  # the disk is full, or the folder is not writable
    return f"a bug in Oarlock: {what}; the details could not be written"


def without_values(words: Sequence[str]) -> list[str]:
    """Return the arguments with their values removed: a value may be a password."""
    kept = []
    for number, word in enumerate(words):
        if word.startswith("-") or number == 0:
            kept.append(word.partition("=")[0])
        else:
            kept.append(word.partition("=")[0] + "=…" if "=" in word else "…")
    return kept


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in sorted(folder.glob("oarlock-crash-*.log"))[: -_KEPT + 1]:
        old.unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = folder / f"oarlock-crash-{stamp}-{os.getpid()}.log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path
