"""Lines of a log file, many at a time. Pure.

An agent stamps all lines that it reads at once with the same time. Such lines stay together as one `Block`
until they are printed: 300 MB of output are 3 million lines, but only 5,000 blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_WINDOW = 1 << 17  # bytes in which the last line with the same time is looked for


@dataclass(frozen=True)
class LogLine:
    """A line of a task's output."""

    time: str  # as in the file: ISO 8601, UTC
    generation: int
    task: str
    text: str


@dataclass(frozen=True)
class Block:
    """Lines of a task that follow each other and have the same time."""

    time: str
    generation: int
    task: str
    data: bytes  # the lines without their time, joined by newlines
    skipped: int = 0  # bytes of output before them that the reader skipped, to catch up

    def lines(self) -> Iterator[LogLine]:
        """Yield each line."""
        for text in self.data.split(b"\n"):
            yield LogLine(self.time, self.generation, self.task, text.decode(errors="replace"))


def split(data: bytes, generation: int, task: str) -> Iterator[Block]:
    """Yield the lines of a log file in order; `data` has only whole lines."""
    at = 0
    while at < len(data):
        line = data.find(b"\n", at)
        space = data.find(b" ", at, line)
        # Only a damaged file has a line without a time.
        if space < 0:
            yield Block(data[at:line].decode(errors="replace"), generation, task, b"")
            at = line + 1
            continue
        stamp = data[at:space]
        mark = b"\n%s " % stamp
        end = _end(data, line, mark)
        yield Block(
            stamp.decode(errors="replace"), generation, task, data[space + 1 : end].replace(mark, b"\n")
        )
        at = end + 1


def _end(data: bytes, line: int, mark: bytes) -> int:
    """Return the end of the last line with the mark among those after the line that ends at `line`."""
    if not data.startswith(mark, line):
        return line
    last = data.rfind(mark, line, line + _WINDOW)
    end = data.find(b"\n", last + len(mark))
    is_apart = data.count(b"\n", line, end) != data.count(mark, line, end)  # the clock was set back
    return line if is_apart else end
