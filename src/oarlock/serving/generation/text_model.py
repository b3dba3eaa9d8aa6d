"""A loaded text model: requests and `oarlock predict` get their texts from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.generation.completion import LENGTH, Completion, Piece
from oarlock.serving.generation.sampling import Sampling
from oarlock.serving.generation.scheduler import Pass, Scheduler
from oarlock.serving.runtimes.runtime import ModelError

if TYPE_CHECKING:
    from oarlock.serving.generation.generator import Generator
    from oarlock.serving.runtimes.runtime import Array

PROMPT = Tensor("prompt", "string", (None,))
COMPLETION = Tensor("completion", "string", (None,))
# For clients that only send a prompt, such as `oarlock predict` and the dialects for tensors.
PLAIN = Sampling(max_tokens=200, temperature=0.7, seed=0)
FOREVER = 1e9  # seconds


class TextModel:
    """A text model in memory. It is also a Runtime: prompts in, completions out."""

    only_computes = False  # the program's own code, in a separate thread

    def __init__(self, manifest: Manifest, generator: Generator) -> None:
        """Take over a generator, in a separate thread. Raises ModelError."""
        self.manifest = replace(manifest, inputs=(PROMPT,), outputs=(COMPLETION,))
        self.generator = generator
        self.form = f"text, {generator.slots} at a time"
        _warm_up(generator)
        self._deadline = FOREVER
        self.scheduler = Scheduler(generator, queue=FOREVER)

    def serve(self, queue: float, deadline: float, note: Callable[[Pass], None]) -> None:
        """Bound the work that may wait and the time of a text, in seconds. `note` gets each pass."""
        self._deadline = deadline
        self.scheduler.queue = queue
        self.scheduler.note = note

    def open(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        copies: int = 1,
        deadline: float | None = None,
    ) -> RequestTexts:
        """Start writing `copies` texts for each prompt. `deadline`: seconds from now; None: the default.

        Raises Overloaded. The caller must always close the stream.
        """
        seconds = self._deadline if deadline is None else deadline
        # More is never read, and 128 copies of a multi-megabyte prompt would fill the memory.
        seen = [prompt[-self.generator.context :] for prompt in prompts]
        return RequestTexts(self.scheduler, seen, sampling, copies, time.monotonic() + seconds)

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None = None) -> dict[str, Array]:
        """Complete prompts. See `Served.predict`."""
        prompts = _texts(inputs)
        written = [""] * len(prompts)
        stream = self.open([self.generator.encode(text) for text in prompts], PLAIN, 1, deadline)
        try:
            while pieces := await stream.pieces():
                for index, piece in pieces:
                    written[index] += piece.text
        finally:
            stream.close()
        return _outputs(written)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Complete prompts. See `Runtime.run`."""
        prompts = _texts(inputs)
        written, going = [""] * len(prompts), len(prompts)
        news: SimpleQueue[tuple[int, Piece]] = SimpleQueue()
        deadline = time.monotonic() + self._deadline
        self.scheduler.submit(
            [
                Completion(self.generator.encode(text), PLAIN, _numbered(news.put, index), deadline)
                for index, text in enumerate(prompts)
            ]
        )
        problem = None
        while going:
            index, piece = news.get()
            written[index] += piece.text
            problem = problem or piece.problem
            going -= piece.is_last
        if problem:
            raise problem
        return _outputs(written)

    def close(self) -> None:
        """Stop its thread. Incomplete texts fail."""
        self.scheduler.close()


class RequestTexts:
    """The texts of one request as they are written. Used by one event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        copies: int,
        deadline: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_news = asyncio.Event()
        self._news: list[tuple[int, Piece]] = []
        self._completions = [
            Completion(prompt, sampling, _numbered(self._send, number * copies + copy), deadline, copy)
            for number, prompt in enumerate(prompts)
            for copy in range(copies)
        ]
        self._going = len(self._completions)
        if sampling.max_tokens > 0:
            scheduler.submit(self._completions)
        else:
            for index in range(self._going):
                self._receive((index, Piece(finish=LENGTH)))

    async def pieces(self) -> list[tuple[int, Piece]]:
        """Wait for something new and return all of it: the number of a text, and a piece of it.

        The texts of the first prompt have the first numbers. Returns nothing when all are complete. Raises
        what went wrong: ModelError, TimeoutError, Overloaded if the server stops, or the model's own error.
        """
        if not self._going:
            return []
        await self._has_news.wait()
        self._has_news.clear()
        found, self._news = self._news, []
        for place, (_, piece) in enumerate(found):
            if piece.problem and not place:
                raise piece.problem
            if piece.problem:  # return what came before it first
                self._news, found = found[place:] + self._news, found[:place]
                self._has_news.set()
                break
            self._going -= piece.is_last
        return found

    def close(self) -> None:
        """Drop the rest, which no client wants, and free the slots."""
        for one in self._completions:
            one.is_abandoned = True

    def _send(self, item: tuple[int, Piece]) -> None:
        """Called by the scheduler's thread."""
        try:
            self._loop.call_soon_threadsafe(self._receive, item)
        except RuntimeError:  # the loop is closed: the server is about to exit
            self.close()

    def _receive(self, item: tuple[int, Piece]) -> None:
        self._news.append(item)
        self._has_news.set()


def _texts(inputs: Mapping[str, Array]) -> list[str]:
    texts = inputs[PROMPT.name].tolist()
    return [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in texts]


def _outputs(written: Sequence[str]) -> dict[str, Array]:
    import numpy as np

    return {COMPLETION.name: np.array(written, dtype=object)}


def _numbered(give: Callable[[tuple[int, Piece]], None], index: int) -> Callable[[Piece], None]:
    return lambda piece: give((index, piece))


def _warm_up(generator: Generator) -> None:
    """Call it with every number of texts and tokens that can occur: the first call of each may compile."""
    try:
        token = generator.encode("")[0]
        for length in _sizes(generator.context):
            generator.start(0, [token] * length)
        for slot in range(generator.slots):
            generator.start(slot, [token])
        for count in _sizes(generator.slots):
            generator.step(range(count), [min(1, generator.context - 1)] * count, [token] * count)
    except Exception as problem:
        raise ModelError(
            f"The model fails at its first text: {type(problem).__name__}: {problem}"
        ) from problem


def _sizes(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})
