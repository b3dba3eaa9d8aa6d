"""The program's handle on its writer process: copy the state, request a save, receive the answer later.

Only the copying happens between two steps; a copy from a GPU only starts there. One save is in flight
at a time, and there is never memory for more than one copy. A writer that dies is restarted and gets the
same copy once more.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Union

from oarlock.checkpoints import safetensors
from oarlock.system import fd_frames, processes
from oarlock.training.saving import gpu_copy, jax_copy
from oarlock.training.saving.save_messages import (
    ANSWERS,
    REQUESTS,
    Answer,
    NotSaved,
    Request,
    Save,
    UseMemory,
)
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.task.gpu_values import OnTheWay
from oarlock.training.tensors.tensor_bytes import Leaf

_ATTEMPTS = 3  # writers that may die during one save
_LARGE = 64 << 20  # bytes above which a second thread is worth starting

_Copies = Union[gpu_copy.GpuCopies, jax_copy.JaxCopies]


class WriterHandle:
    """Starts the writer when it is needed, and restarts it when it dies."""

    def __init__(self) -> None:
        self._buffer: Buffer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._in_flight: Save | None = None
        self._copying: threading.Thread | None = None  # from a GPU; the writer gets the request after that
        self._not_copied: NotSaved | None = None
        self._attempts = 0

    @property
    def is_busy(self) -> bool:
        """Whether a save is in flight."""
        return self._in_flight is not None

    def prepare(self, leaves: Mapping[str, Leaf]) -> None:
        """Start the writer and allocate memory before they are needed. Returns at once."""
        size = sum(leaf.shape.bytes for leaf in leaves.values())
        if self._process is None:
            self._start()
        if self._buffer is None or self._buffer.size < size:
            if self._buffer is not None:
                self._buffer.close()
                self._buffer = None  # before another is allocated
            self._buffer = Buffer(size)
            self._send(UseMemory(), (self._buffer.fd,))

    def save(self, leaves: Mapping[str, Leaf], tree: Any, request: Save, metrics: OnTheWay) -> None:
        """Copy the state, and leave the rest to the writer. The caller waits for the previous save first."""
        assert not self.is_busy
        self.prepare(leaves)
        assert self._buffer is not None
        self._buffer.settle()
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        places = safetensors.places(shapes)
        begun = [way.begin(leaves, places, self._buffer) for way in (gpu_copy, jax_copy)]
        later = {name for copies in begun for name in copies.names}
        _copy({name: leaf for name, leaf in leaves.items() if name not in later}, places, self._buffer)
        header = safetensors.header(shapes, tree)
        size = sum(shape.bytes for shape in shapes.values())
        self._in_flight = replace(request, header=header, size=size)
        self._attempts = 1
        if not later and metrics.is_here:
            self._request([], metrics)
            return
        self._copying = threading.Thread(target=self._request, args=(begun, metrics), name="oarlock-copy")
        self._copying.daemon = True
        self._copying.start()

    def _request(self, begun: Iterable[_Copies], metrics: OnTheWay) -> None:
        """Request the save once everything is copied; in a thread if that takes time."""
        assert self._in_flight is not None
        try:
            for copies in begun:
                copies.wait()
            self._in_flight = self._in_flight.with_metrics(metrics.read())
            self._send(self._in_flight)
        except RuntimeError as error:
            self._not_copied = NotSaved(f"it could not be copied from the GPU: {str(error).splitlines()[0]}")

    def answer(self, wait: float = 0.0) -> Answer | None:
        """How the save in flight ended; None if it has not after `wait` seconds, or if there is none."""
        deadline = time.monotonic() + wait
        if self._copying is not None:
            self._copying.join(wait)
            if self._copying.is_alive():
                return None
            self._copying, failed, self._not_copied = None, self._not_copied, None
            if failed is not None:
                self._in_flight = None
                return failed
        while self._in_flight is not None:
            assert self._sock is not None
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], left)[0]:
                return None
            data, _ = fd_frames.receive(self._sock)
            if data is not None:
                self._in_flight = None
                return ANSWERS.from_data(data)
            self._stop()
            if self._attempts == _ATTEMPTS:
                self._in_flight = None
                return NotSaved(f"its writer died {_ATTEMPTS} times")
            self._attempts += 1
            self._start()
            self._send(self._in_flight.retried())
        return None

    def close(self) -> None:
        """Stop the writer once it has written what is in flight, and free the memory."""
        if self._copying is not None:
            self._copying.join()
        self._stop()
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-S", "-c", processes.entry("oarlock.training.saving.writer")]
            self._process = subprocess.Popen(
                [*words, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        if self._buffer is not None:
            self._send(UseMemory(), (self._buffer.fd,))

    def _stop(self) -> None:
        if self._sock is not None:
            self._sock.close()
        if self._process is not None:
            self._process.wait()
        self._sock = self._process = None

    def _send(self, request: Request, fds: tuple[int, ...] = ()) -> None:
        assert self._sock is not None
        try:
            fd_frames.send(self._sock, REQUESTS.to_data(request), fds)
        except ConnectionError:
            pass  # `answer` notices that the writer died, and restarts it


def _copy(leaves: Mapping[str, Leaf], places: Mapping[str, tuple[int, int]], buffer: Buffer) -> None:
    # A collective must run in the same order on every rank, and before anything that only this rank does.
    ordered = sorted(leaves, key=lambda name: (not leaves[name].is_collective, name))

    def write(name: str) -> None:
        leaves[name].write(buffer.view(*places[name]))

    collectives = [name for name in ordered if leaves[name].is_collective]
    others = ordered[len(collectives) :]
    for name in collectives:
        write(name)
    if sum(leaf.shape.bytes for leaf in leaves.values()) < _LARGE:
        for name in others:
            write(name)
    else:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, others))


def join_collectives(leaves: Mapping[str, Leaf]) -> None:
    """Take part in reading values that are spread over all ranks, on a rank that saves nothing."""
    for name in sorted(leaves):
        if leaves[name].is_collective:
            leaves[name].write(memoryview(bytearray(leaves[name].shape.bytes)))
