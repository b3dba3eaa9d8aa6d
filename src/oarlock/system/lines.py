"""Turns bytes, as they arrive, into whole lines. Pure."""

from __future__ import annotations

CONTINUED = b" [line continues]"  # after each piece but the last of a line that is too long for a log


class Lines:
    """Splits a stream at newlines and keeps the unfinished rest."""

    def __init__(self) -> None:
        self.rest = b""  # the bytes since the last newline

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines

    def whole(self, data: bytes) -> bytes:
        """The same in one piece, with the newlines."""
        end = data.rfind(b"\n") + 1
        if not end:
            self.rest += data
            return b""
        lines, self.rest = self.rest + data[:end], data[end:]
        return lines

    def take_rest(self) -> bytes:
        """Return the unfinished line and drop it here."""
        rest, self.rest = self.rest, b""
        return rest
