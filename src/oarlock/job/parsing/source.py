"""The content of a job file: plain data, and the line of each field."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.errors import JobError
from oarlock.job.parsing.fields import Path as FieldPath

LARGEST = 1024 * 1024


@dataclass(frozen=True)
class JobSource:
    """Plain data, and where each field was written."""

    shown: str  # the file's name in messages
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def where(self, path: FieldPath) -> str:
        """The place of a field, such as `job.yaml:7`: its line, or that of the nearest field around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.shown}:{self.lines[path[:length]]}"
        return self.shown


def read_text(path: Path, shown: str) -> str:
    """Read a small text file; raises JobError if it is not one."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise JobError(f"{shown}: a folder, not a file")
        if not stat.S_ISREG(about.st_mode):  # reading a pipe could wait forever
            raise JobError(f"{shown}: not a regular file")
        if about.st_size > LARGEST:
            raise JobError(f"{shown}: too large for a job file ({about.st_size} bytes, at most {LARGEST})")
        content = path.read_bytes()
    except OSError as problem:
        raise JobError(f"{shown}: cannot be read: {problem.strerror or problem}") from None
    if b"\0" in content:
        raise JobError(f"{shown}:{_line(content, content.index(0))}: a NUL byte; a job file is text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise JobError(
            f"{shown}:{_line(content, problem.start)}: not UTF-8; save the file as UTF-8"
        ) from None


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1
