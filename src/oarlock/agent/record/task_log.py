"""The output of one task as its agent records it: whole lines, each with the time when it was read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from oarlock.agent.record import pod_lines, unfinished
from oarlock.agent.record.log_segments import LogFile
from oarlock.system.lines import CONTINUED, Lines

if TYPE_CHECKING:
    from oarlock.agent.record.run_record import Record

LINE_LIMIT = 64 * 1024  # bytes
_PAUSE, _POD_PAUSE = 0.2, 1.0  # seconds between two updates of an unfinished line


class Log:
    """A task's output, added as it arrives. Bytes stay as they are."""

    def __init__(self, record: Record, file: LogFile | None, task: str, generation: int) -> None:
        self._record = record
        self._file = file
        self._task, self._generation = task, generation
        self._lines = Lines()
        self._shown = b""
        self._missing = {"the disk": 0, "standard output": 0}  # lines dropped since the last one written

    def feed(self, data: bytes) -> None:
        """Add output as it arrives."""
        pieces = [piece for line in self._lines.feed(data) for piece in _pieces(line)]
        *begun, self._lines.rest = _pieces(self._lines.rest)  # an endless line must not fill the memory
        self._put([*pieces, *begun])

    @property
    def pause(self) -> float:
        """The seconds between two calls of `show`. More in a pod, which keeps what it prints."""
        return _PAUSE if self._record.echo is None else _POD_PAUSE

    def show(self) -> None:
        """Show the unfinished line as it is now. It does not become part of the log."""
        state = unfinished.last_state(self._lines.rest)
        if not state or state == self._shown:
            return
        self._shown = state
        if self._file is not None:
            self._record.show(self._file, state)
        if self._record.echo is not None:
            line = pod_lines.prefix(self._task, self._generation, is_whole=False) + state + b"\n"
            self._record.echo.write(line)

    @property
    def has_begun(self) -> bool:
        """Whether there is an unfinished line."""
        return bool(self._lines.rest)

    def say(self, text: str) -> None:
        """Add a line of the agent's own, after the line that the task has begun: progress bars never end."""
        begun = self._lines.take_rest()
        self._put([*([begun] if begun else []), text.encode()])

    def close(self) -> None:
        """Add the unfinished line, and close the file."""
        if self._lines.rest:
            self._put([self._lines.take_rest()])
        if self._file is not None:
            self._record.close(self._file)

    def _put(self, said: list[bytes]) -> None:
        if not said:
            return
        self._shown = b""
        file, echo = self._file, self._record.echo
        if file is not None:
            stamp = timestamp(time.time()).encode() + b" "
            data = self._joined(stamp, said, "the disk")
            self._count("the disk", len(said), self._record.append(file, data))
        if echo is not None:
            data = self._joined(pod_lines.prefix(self._task, self._generation), said, "standard output")
            self._count("standard output", len(said), echo.write(data))
        if self._record.missing:
            self._record.note_losses()

    def _joined(self, head: bytes, said: list[bytes], where: str) -> bytes:
        """The lines as bytes, after a line that stands for the dropped ones."""
        missing = self._missing[where]
        if missing:
            said = [
                b"oarlock: %d lines are missing here: %s accepted none" % (missing, where.encode()),
                *said,
            ]
        return b"".join(head + line + b"\n" for line in said)

    def _count(self, where: str, count: int, is_taken: bool) -> None:
        if is_taken:
            self._missing[where] = 0
        else:
            self._missing[where] += count
            self._record.missing[where] = self._record.missing.get(where, 0) + count


def _pieces(line: bytes) -> list[bytes]:
    """Split a line that is too long into pieces that say so. Any other stays as it is."""
    pieces = []
    while len(line) > LINE_LIMIT:
        cut = _cut(line)
        pieces.append(line[:cut] + CONTINUED)
        line = line[cut:]
    return [*pieces, line]


def _cut(line: bytes) -> int:
    """Where to cut: after an update of a progress bar, otherwise not within a character."""
    cut = line.rfind(b"\r", LINE_LIMIT // 2, LINE_LIMIT) + 1
    if cut:
        return cut
    inside = next((count for count in range(4) if line[LINE_LIMIT - count] & 0xC0 != 0x80), 0)
    return LINE_LIMIT - inside


def timestamp(seconds: float) -> str:
    """A time as in logs: UTC, with microseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e6):06d}Z"
