"""One text being written: its tokens, the window of them that the model sees, and what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock.serving.generation.sampling import Sampling, log_chances
from oarlock.serving.generation.text_stream import TextStream

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

STOP, LENGTH = "stop", "length"  # why a text ends, in OpenAI's terms


@dataclass(frozen=True)
class TokenChance:
    """A drawn token: what it stands for, its log probability, and those of the likeliest tokens."""

    piece: bytes
    chance: float
    likeliest: tuple[tuple[bytes, float], ...]


@dataclass(frozen=True)
class Piece:
    """What is new in a text: after each token, and when it ends."""

    text: str = ""
    tokens: int = 0
    finish: str = ""  # STOP or LENGTH with the last piece
    token_chance: TokenChance | None = None
    problem: Exception | None = None  # why there is no more, if the text was cut off

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return bool(self.finish) or self.problem is not None


class Completion:
    """One text. Only the scheduler's thread uses it, except for `is_abandoned`."""

    def __init__(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        send: Callable[[Piece], None],
        deadline: float,
        copy: int = 0,
    ) -> None:
        """`deadline` is in time.monotonic(); `copy` numbers the texts of one request with the same prompt."""
        import numpy as np

        self.sampling = sampling
        self.deadline = deadline
        self.is_abandoned = False  # set when the client no longer wants it
        self.is_over = False  # its last piece was sent
        self.slot = -1
        self.left = sampling.max_tokens  # tokens it may still draw
        self._send = send
        self._tokens = list(prompt)
        self._begin = 0  # start of the window
        self._stream = TextStream(sampling.stop)
        self._random = np.random.default_rng(None if sampling.seed is None else [sampling.seed, copy])

    def first_window(self, context: int) -> list[int]:
        """Return what the model reads first: the prompt, or its end if it is too long."""
        self._begin = max(0, len(self._tokens) - context)
        return self._tokens[self._begin :]

    def next_window(self, context: int) -> list[int] | None:
        """Return None while the window has room for the newest token, else the tokens to start over with.

        Keys and values hold only for their positions, so a window cannot move by one. It jumps by half.
        """
        if len(self._tokens) - self._begin <= context:
            return None
        return self.first_window(max(1, context // 2))

    @property
    def newest(self) -> int:
        """The last token."""
        return self._tokens[-1]

    @property
    def position(self) -> int:
        """Its position in the window."""
        return len(self._tokens) - self._begin - 1

    def chance(self) -> float:
        """Return the next random number: one per token, no matter how it is drawn."""
        return float(self._random.random())

    def add(self, token: int, scores: Array, decode: Callable[[int], bytes]) -> None:
        """Take a token that was drawn from these scores, and send what is new."""
        self._tokens.append(token)
        self.left -= 1
        piece = decode(token)
        text = self._stream.feed(piece)
        finish = STOP if not piece or self._stream.is_stopped else "" if self.left > 0 else LENGTH
        if finish:
            text += self._stream.rest()
        chance = self._token_chance(token, scores, decode) if self.sampling.logprobs is not None else None
        self._give(Piece(text, 1, finish, chance))

    def cut(self) -> None:
        """End the text with what it has."""
        self._give(Piece(self._stream.rest(), 0, LENGTH))

    def fail(self, problem: Exception) -> None:
        """End the text with a problem."""
        self._give(Piece(problem=problem))

    def _give(self, piece: Piece) -> None:
        self.is_over = piece.is_last
        self._send(piece)

    def _token_chance(self, token: int, scores: Array, decode: Callable[[int], bytes]) -> TokenChance:
        chances = log_chances(scores)
        likeliest = (-chances).argsort(kind="stable")[: self.sampling.logprobs]
        pairs = tuple((decode(int(other)), float(chances[other])) for other in likeliest)
        return TokenChance(decode(token), float(chances[token]), pairs)
