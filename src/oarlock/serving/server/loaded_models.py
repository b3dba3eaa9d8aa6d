"""The versions that a replica has loaded, and which of them answers a request."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.models.model_manifest import Manifest
from oarlock.models.model_versions import Version
from oarlock.serving.batching import first_batches
from oarlock.serving.batching.batcher import Batcher
from oarlock.serving.counters import Counters
from oarlock.serving.generation.scheduler import Pass
from oarlock.serving.generation.text_model import TextModel
from oarlock.serving.runtimes.runtime import Runtime
from oarlock.serving.server import model_loading
from oarlock.serving.settings import Settings
from oarlock.system.processors import usable_cores

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


class LoadedVersion:
    """One version in memory, with its queue."""

    def __init__(self, number: int, runtime: Runtime, settings: Settings, counters: Counters) -> None:
        self.number = number
        self.runtime = runtime
        self.manifest: Manifest = runtime.manifest
        self.form: str = runtime.form
        # A text model does its own batching: requests join and leave between two tokens.
        self.text = runtime if isinstance(runtime, TextModel) else None
        self._counters = counters
        self._model: Batcher | TextModel
        if self.text is None:
            self._model = Batcher(runtime, settings, counters, number)
        else:
            self._model = self.text
            self.text.serve(settings.queue, settings.deadline, self._note)

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None) -> dict[str, Array]:
        """See `Served.predict`."""
        return await self._model.predict(inputs, deadline)

    def _note(self, done: Pass) -> None:
        self._counters.observe("model_seconds", done.seconds)
        self._counters.observe("batch_rows", done.tokens)
        self._counters.add("tokens_total", done.tokens, version=self.number)
        self._counters.set("queue_rows", done.waiting)

    def close(self) -> None:
        """Compute what waits, then release the model."""
        self._model.close()


class LoadedModels:
    """All versions of one replica: one or, in an A/B test, several."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.name = settings.name
        self.settings = settings
        self.counters = counters
        self.is_ready = False
        self._loaded: dict[int, LoadedVersion] = {}
        self._draw: Callable[[], LoadedVersion] | None = None

    def load(self, versions: Sequence[Version], say: Callable[[str], object]) -> None:
        """Load and warm up; `say` gets the reason if a faster form is not used. Raises ModelError."""
        predict = Path(self.settings.predict) if self.settings.predict else None
        threads = max(1, usable_cores() // self.settings.replicas)
        for version in versions:
            runtime = model_loading.load(version, predict, threads=threads, note=say)
            if not isinstance(runtime, TextModel):  # which has warmed up already
                is_choosy = predict is not None
                first_batches.run(version.path, runtime, self.settings.max_rows, is_choosy=is_choosy)
            self._loaded[version.number] = LoadedVersion(
                version.number, runtime, self.settings, self.counters
            )
        self._draw = self._drawing()

    def _drawing(self) -> Callable[[], LoadedVersion]:
        """How to choose the version for a request that names none."""
        loaded = list(self._loaded.values())
        if len(loaded) == 1:
            return lambda: loaded[0]
        weights = [self.settings.weights.get(one.number, 0.0) for one in loaded]
        chance = random.Random()
        return lambda: chance.choices(loaded, weights)[0]

    def pick(self, number: int | None) -> LoadedVersion:
        """See `Models.pick`."""
        if number is None and self._draw is not None:
            return self._draw()
        if number not in self._loaded:
            known = ", ".join(map(str, self._loaded))
            raise KeyError(f"version {number} of {self.name} is not loaded; loaded: {known}")
        return self._loaded[number]

    def all(self) -> Sequence[LoadedVersion]:
        """See `Models.all`."""
        return sorted(
            self._loaded.values(), key=lambda one: (-self.settings.weights.get(one.number, 0), -one.number)
        )

    def close(self) -> None:
        """Release all of them."""
        for one in self._loaded.values():
            one.close()
