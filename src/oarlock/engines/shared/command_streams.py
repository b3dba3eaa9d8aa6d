"""Where the streams of a command beside a run end: on this terminal, in pipes, or in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True)
class Streams:
    """The ends of a command's streams on this machine."""

    stdin: int | None  # a file descriptor; None if the command gets no input
    stdout: IO[bytes]
    stderr: IO[bytes]
    is_terminal: bool = False  # then stdin is a terminal, and the command gets one

    @property
    def are_captured(self) -> bool:
        """Whether the output is collected in memory."""
        return isinstance(self.stdout, io.BytesIO)


def captured(stdin: int | None) -> Streams:
    """Return streams that collect the output in memory."""
    return Streams(stdin, io.BytesIO(), io.BytesIO())
