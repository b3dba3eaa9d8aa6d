"""What was read from a file: plain data, and for each field the line it stands on."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.errors import JobError
from oarlock.job.parsing.fields import Path as FieldPath

LARGEST = 1024 * 1024


def stays_text(path: FieldPath) -> bool:
    """Whether a number or a boolean is passed on as it is written: `LR: 1e-3` in `env` is 1e-3, not 0.001."""
    return any(
        len(path) > len(around) and all(name in (part, "*") for name, part in zip(around, path))
        for around in _TEXTS
    )


# The fields that hold nothing but text; a star stands for any one name.
_TEXTS: tuple[FieldPath, ...] = (
    *(("args",), ("command",), ("env",), ("pip",)),
    *(("kubernetes", name) for name in ("labels", "annotations", "node_selector")),
    ("kubernetes", "secrets", "*", "env"),
    ("roles", "*", "node_selector"),
    ("roles", "*", "*", "node_selector"),  # of a group
    ("roles", "*", "groups", "*", "node_selector"),
)


@dataclass(frozen=True)
class Source:
    shown: str  # how messages call the file
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def where(self, path: FieldPath) -> str:
        """`job.yaml:7` for a field, by the nearest field around it that has a line."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.shown}:{self.lines[path[:length]]}"
        return self.shown


def read_text(path: Path, shown: str) -> str:
    """A small text file, or one clear line about why it is none."""
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
