"""What the kernel has logged about GPUs since this process began to listen: /dev/kmsg, if it is readable."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_ABOUT_GPUS = re.compile(r"NVRM: |amdgpu")
_RECORD = 8192  # bytes: the longest record of the kernel
_MOST_RECORDS = 100_000
_MOST_LINES = 50


class KernelLog:
    """Has no lines if the log is not readable, as in most containers."""

    def __init__(self, file: Path = Path("/dev/kmsg")) -> None:
        self._lines: list[str] = []  # the newest
        self._count = 0  # of all lines so far, including those that are dropped
        try:
            self._fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = -1

    def mark(self) -> int:
        """Return the place behind the newest line about GPUs: what is logged from now on comes after it."""
        self._read()
        return self._count

    def about_gpus(self, mark: int = 0) -> list[str]:
        """Return the newest lines about GPUs after a mark, oldest first; without one, since the start."""
        self._read()
        dropped = self._count - len(self._lines)
        return self._lines[max(mark - dropped, 0) :]

    def _read(self) -> None:
        for _ in range(_MOST_RECORDS if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, _RECORD)
            except OSError as problem:
                if problem.errno == errno.EPIPE:  # some records are overwritten: continue with the rest
                    continue
                break
            if not record:
                break
            texts = [line.partition(";")[2] for line in record.decode(errors="replace").splitlines()]
            lines = [text.replace("\\x0a", " ") for text in texts if _ABOUT_GPUS.search(text)]
            self._lines += lines
            self._count += len(lines)
        del self._lines[:-_MOST_LINES]

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
