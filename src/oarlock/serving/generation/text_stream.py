"""From token bytes to text that can be sent: whole characters, and no part of a stop string. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """One text as it is written. What may become part of a stop string waits until that is decided."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.is_stopped = False  # a stop string has arrived; the text is complete

    def feed(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that can be sent now."""
        self._held += self._decoder.decode(piece)
        found = [place for place in map(self._held.find, self._stops) if place >= 0]
        if found:
            self.is_stopped = True
            self._held = self._held[: min(found)]
            return self.rest()
        ready = len(self._held) - self._length_of_a_beginning()
        text, self._held = self._held[:ready], self._held[ready:]
        return text

    def rest(self) -> str:
        """Return what waited when nothing more comes. Half a character is not text and is left out."""
        text, self._held = self._held, ""
        return text

    def _length_of_a_beginning(self) -> int:
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
