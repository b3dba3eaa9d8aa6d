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
        self._lines: list[str] = []
        try:
            self._fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = -1

    def about_gpus(self) -> list[str]:
        """Return the newest lines about GPUs since the start, oldest first."""
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
            self._lines += [text.replace("\\x0a", " ") for text in texts if _ABOUT_GPUS.search(text)]
        del self._lines[:-_MOST_LINES]
        return list(self._lines)

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
