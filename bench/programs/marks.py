"""What the measured programs write down about themselves: who they are, and when their steps were done.

Of no launcher: the same file serves ours and the peer's processes, and costs both the same.
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_MOST = 1 << 20  # steps that are timed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--marks", type=Path, help="a folder to write into; in a pod any will do")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--report", action="store_true", help="report every step to oarlock")
    return parser.parse_args()


class Marks:
    """Files in the folder: `pid.RANK`, `times.RANK`, and `first`: a line per generation's first step, which
    the log has too, for those who cannot see the folder."""

    def __init__(self, given: argparse.Namespace, rank: int) -> None:
        self.folder: Path = given.marks or Path(tempfile.mkdtemp())
        self.leads = rank == 0
        self.times = _numbers(self.folder / f"times.{rank}", _MOST)
        self._write_pid(rank)

    def steps(self, count: int) -> Iterator[int]:
        """1 to count. Control comes back here when a step is done: the moment to look at the clock."""
        for number in range(1, count + 1):
            yield number
            if number < _MOST:
                self.times[number] = time.monotonic()
            if number == 1 and self.leads:
                now = time.time()
                with (self.folder / "first").open("a") as file:
                    file.write(f"{now} {os.getpid()}\n")
                print("FIRST STEP", now, flush=True)

    def _write_pid(self, rank: int) -> None:
        """Complete or not at all: somebody is waiting for it."""
        draft = self.folder / f"draft.{os.getpid()}"
        draft.write_text(str(os.getpid()))
        draft.replace(self.folder / f"pid.{rank}")


def _numbers(path: Path, count: int) -> memoryview:
    """Floating point numbers in a mapped file: written in a tenth of a microsecond, readable at any time."""
    with path.open("wb+") as file:
        file.truncate(8 * count)
        return memoryview(mmap.mmap(file.fileno(), 8 * count)).cast("d")
