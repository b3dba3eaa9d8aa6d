"""Small text models for tests: one whose scores depend on all that its slot has read, one with a script."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from oarlock.serving.generation.completion import Completion, Piece
from oarlock.serving.generation.sampling import Sampling

DEADLINE = 120.0  # seconds
Array = np.ndarray[Any, Any]


class Bytewise:
    """Its scores are random numbers that the bytes in the slot determine: one byte amiss, another text."""

    vocabulary = 128  # so that all it writes is text

    def __init__(self, slots: int = 4, context: int = 64) -> None:
        self.slots = slots
        self.context = context
        self.most = 0  # texts in one step
        self._kept = np.zeros((slots, context), np.uint8)

    def encode(self, text: str) -> list[int]:
        return list(text.encode()) or [10]

    def decode(self, token: int) -> bytes:
        return bytes([token])

    def start(self, slot: int, tokens: Sequence[int]) -> Array:
        self._kept[slot] = 0
        self._kept[slot, : len(tokens)] = tokens
        return self.scores(bytes(tokens))

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        self.most = max(self.most, len(slots))
        self._kept[slots, positions] = tokens
        read = (self._kept[slot, : place + 1].tobytes() for slot, place in zip(slots, positions))
        return np.stack([self.scores(one) for one in read])

    def scores(self, read: bytes) -> Array:
        return np.random.default_rng(zlib.crc32(read)).standard_normal(self.vocabulary).astype(np.float32)

    def text(self, prompt: bytes, count: int) -> bytes:
        """What it writes with temperature 0, computed with nothing kept and nothing beside it."""
        written, begin = bytearray(prompt), max(0, len(prompt) - self.context)
        for _ in range(count):
            if len(written) - begin > self.context:
                begin = len(written) - self.context // 2
            written.append(int(self.scores(bytes(written[begin:])).argmax()))
        return bytes(written[len(prompt) :])


class Gated(Bytewise):
    """Waits before each step until the test allows one."""

    def __init__(self, slots: int = 4, context: int = 64) -> None:
        super().__init__(slots, context)
        self.is_held = True
        self._allowed = threading.Semaphore(0)

    def allow(self, steps: int) -> None:
        self._allowed.release(steps)

    def allowed(self, steps: int) -> bool:
        """The same, within a condition."""
        self.allow(steps)
        return True

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        assert not self.is_held or self._allowed.acquire(timeout=DEADLINE), "no step was allowed"
        return super().step(slots, positions, tokens)


class Scripted(Bytewise):
    """Writes the same tokens after any prompt; each stands for some bytes, and b"" ends the text."""

    def __init__(self, *script: bytes, slots: int = 4) -> None:
        super().__init__(slots, context=4096)
        self._script = script
        self._begun = [0] * slots

    def decode(self, token: int) -> bytes:
        return self._script[token % len(self._script)]

    def start(self, slot: int, tokens: Sequence[int]) -> Array:
        self._begun[slot] = len(tokens)
        return self._scores_of(0)

    def step(self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> Array:
        return np.stack(
            [self._scores_of(place - self._begun[slot] + 1) for slot, place in zip(slots, positions)]
        )

    def _scores_of(self, index: int) -> Array:
        scores = np.zeros(self.vocabulary, np.float32)
        scores[index % len(self._script)] = 100
        return scores


class Reading:
    """One text, and its pieces as they come, for a test that is not asynchronous."""

    def __init__(self, prompt: str, max_tokens: int = 16, seconds: float = DEADLINE, **chosen: Any) -> None:
        self._pieces: SimpleQueue[Piece] = SimpleQueue()
        sampling = Sampling(max_tokens, **{"temperature": 0.0, **chosen})
        self.completion = Completion(
            list(prompt.encode()), sampling, self._pieces.put, time.monotonic() + seconds
        )

    def piece(self) -> Piece:
        """Wait for the next one."""
        return self._pieces.get(timeout=DEADLINE)

    def pieces(self) -> list[Piece]:
        """Wait for all that are left."""
        found = [self.piece()]
        while not found[-1].is_last:
            found.append(self.piece())
        return found

    def text(self) -> str:
        """Wait for the end of the text, and return what is left of it."""
        found = self.pieces()
        assert found[-1].problem is None, found[-1].problem
        return "".join(piece.text for piece in found)
