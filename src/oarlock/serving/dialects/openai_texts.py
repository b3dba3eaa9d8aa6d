"""The texts of one request in OpenAI's completions format: as a stream, and whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oarlock.serving.generation.completion import Piece, TokenChance

_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class Texts:
    """The texts of a request so far, by number."""

    def __init__(
        self, about: Mapping[str, Any], echoes: Sequence[str], prompt_tokens: int, *, has_usage: bool
    ) -> None:
        """`echoes`: how each text begins. `has_usage`: a stream ends with the number of tokens."""
        self._about = about
        self._has_usage = has_usage
        self._unsaid = list(echoes)
        self._texts = [_Choice(index) for index in range(len(echoes))]
        self._prompt_tokens = prompt_tokens
        self.tokens = 0  # written so far

    def add(self, index: int, piece: Piece) -> dict[str, Any] | None:
        """Take a piece of a text; return the stream's event for it, or None if there is nothing to send."""
        self.tokens += piece.tokens
        text, self._unsaid[index] = self._unsaid[index] + piece.text, ""
        said = self._texts[index].add(text, piece)
        if not (text or piece.is_last or piece.token_chance):
            return None
        return {**self._about, "choices": [said], **({"usage": None} if self._has_usage else {})}

    def whole(self) -> dict[str, Any]:
        """The answer when all texts are complete."""
        return {**self._about, "choices": [one.whole() for one in self._texts], "usage": self._usage()}

    def last(self) -> list[dict[str, Any]]:
        """The stream's events after the last piece."""
        return [{**self._about, "choices": [], "usage": self._usage()}] if self._has_usage else []

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self._prompt_tokens + self.tokens,
        }


class _Choice:
    def __init__(self, index: int) -> None:
        self._index = index
        self._parts: list[str] = []
        self._finish = ""
        self._chances: list[dict[str, Any]] = []
        self._offset = 0  # characters that have started

    def add(self, text: str, piece: Piece) -> dict[str, Any]:
        self._parts.append(text)
        self._finish = piece.finish
        chances = [self._chance(piece.token_chance)] if piece.token_chance else []
        self._chances += chances
        return self._said(text, chances)

    def whole(self) -> dict[str, Any]:
        return self._said("".join(self._parts), self._chances)

    def _said(self, text: str, chances: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "text": text,
            "index": self._index,
            "logprobs": {name: [one[name] for one in chances] for name in _LISTS} if chances else None,
            "finish_reason": self._finish or None,
        }

    def _chance(self, found: TokenChance) -> dict[str, Any]:
        offset = self._offset
        self._offset += sum(byte & 0xC0 != 0x80 for byte in found.piece)  # not bytes inside a character
        likeliest = {_name(piece): chance for piece, chance in found.likeliest}
        return dict(zip(_LISTS, (_name(found.piece), found.chance, likeliest, offset)))


def _name(piece: bytes) -> str:
    """A token as OpenAI writes it: part of a character as its bytes."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
