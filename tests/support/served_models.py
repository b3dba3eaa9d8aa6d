"""Small real models, computed by NumPy, and a server for them on a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
import uvloop

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.counters import Blocks, Counters
from oarlock.serving.generation.generator import Generator
from oarlock.serving.generation.text_model import TextModel
from oarlock.serving.http.app import application
from oarlock.serving.http.client_connection import connections
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.settings import Settings
from tests.support.waiting import eventually

Array = np.ndarray[Any, Any]
Compute = Callable[[Mapping[str, Array]], dict[str, Array]]


class Computed:
    """One version. It computes in a thread, as the server's batcher does."""

    def __init__(self, manifest: Manifest, compute: Compute, number: int = 1) -> None:
        self.manifest = manifest
        self.compute = compute
        self.number = number
        self.form = "NumPy"
        self.text: TextModel | None = None
        self.started = 0
        self.dropped = 0

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None) -> dict[str, Array]:
        self.started += 1
        try:
            return await asyncio.wait_for(asyncio.to_thread(self.compute, inputs), deadline)
        except asyncio.CancelledError:
            self.dropped += 1
            raise


@dataclass
class ServedModels:
    """What a replica would have loaded."""

    versions: Sequence[Computed]
    name: str = "m"
    settings: Settings = field(default_factory=lambda: Settings("m", "models"))
    counters: Counters = field(default_factory=lambda: Blocks(1).counters(0))
    is_ready: bool = True

    def pick(self, number: int | None) -> Computed:
        for one in self.versions:
            if number in (None, one.number):
                return one
        raise KeyError(f"no version {number} is loaded, only {[one.number for one in self.versions]}")

    def all(self) -> Sequence[Computed]:
        return self.versions


@contextmanager
def serving(models: ServedModels) -> Iterator[int]:
    """Run uvicorn in a thread; the value is the port."""
    config = uvicorn.Config(
        application(models),
        http=connections(models.settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=_run, args=(server, listener), daemon=True)
        thread.start()
        eventually(lambda: server.started, "uvicorn accepts connections")
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "uvicorn has not stopped after 60 s"


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(server.serve([listener]))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def writer(generator: Generator) -> Computed:
    """A text model, with its own thread."""
    text = TextModel(Manifest("python", (), (), kind="completion"), generator)
    version = Computed(text.manifest, text.run)
    version.text = text
    return version


def classifier(number: int = 1) -> Computed:
    """An image of 4x3 into three classes."""
    weights = np.random.default_rng(number).normal(size=(12, 3)).astype("float32")

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        with np.errstate(all="ignore"):  # an infinity is an input, too
            logits = inputs["image"].reshape(-1, 12) @ weights
            scores = np.exp(logits - logits.max(axis=1, keepdims=True))
            return {"scores": scores / scores.sum(axis=1, keepdims=True)}

    manifest = Manifest(
        format="python",
        kind="image",
        inputs=(Tensor("image", "float32", (None, 4, 3)),),
        outputs=(Tensor("scores", "float32", (None, 3)),),
        labels=("cat", "dog", "owl"),
    )
    return Computed(manifest, compute, number)


def calculator() -> Computed:
    """Two inputs and two outputs of different types."""

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        a, b = inputs["a"], inputs["b"]
        if (b < 0).any():
            raise ModelError("b is negative")
        with np.errstate(all="ignore"):
            return {"quotient": a / b[:, None].astype("float64"), "sum": a.sum(axis=1).astype("int64") + b}

    manifest = Manifest(
        format="python",
        inputs=(Tensor("a", "float64", (None, 2)), Tensor("b", "int8", (None,))),
        outputs=(Tensor("quotient", "float64", (None, 2)), Tensor("sum", "int64", (None,))),
    )
    return Computed(manifest, compute)


def echo(dtype: str, shape: tuple[int | None, ...] = (None, 2)) -> Computed:
    """What comes in goes out."""
    manifest = Manifest(
        format="python",
        inputs=(Tensor("x", dtype, shape),),
        outputs=(Tensor("y", dtype, shape),),
        kind="text" if dtype == "string" else "tensor",
    )
    return Computed(manifest, lambda inputs: {"y": inputs["x"]})
