"""The program's side of a save: copy the state, tell the writer, hear later that it is on the disk.

Between two steps only the copying happens. One save is in flight at a time, and memory for one copy is all
that is ever taken. A writer that dies is started again and gets the same copy once more.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oarlock.checkpoints import safetensors
from oarlock.checkpoints.safetensors import Shape
from oarlock.system import fd_frames, processes
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.saving.tensor_bytes import Leaf

_ATTEMPTS = 3  # writers that may die over one save
_LARGE = 64 << 20  # bytes from which a second thread is worth starting

Answer = dict[str, Any]


class Saver:
    def __init__(self) -> None:
        self._buffer: Buffer | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._letter: dict[str, Any] | None = None  # the save in flight
        self._attempts = 0

    @property
    def is_busy(self) -> bool:
        return self._letter is not None

    def prepare(self, leaves: Mapping[str, Leaf]) -> None:
        """Have writer and memory ready before they are needed. Returns at once."""
        size = sum(leaf.shape.bytes for leaf in leaves.values())
        if self._writer is None:
            self._start()
        if self._buffer is None or self._buffer.size < size:
            if self._buffer is not None:
                self._buffer.close()
                self._buffer = None  # before there is another
            self._buffer = Buffer(size)
            _pin(self._buffer, leaves.values())
            self._send({}, (self._buffer.fd,))

    def save(self, leaves: Mapping[str, Leaf], tree: Any, letter: Mapping[str, Any]) -> None:
        """Copy, and leave the rest to the writer. The caller waits for the last one first."""
        assert not self.is_busy
        self.prepare(leaves)
        assert self._buffer is not None
        self._buffer.settle()
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        _copy(leaves, shapes, self._buffer)
        header = safetensors.header(shapes, tree)
        size = sum(shape.bytes for shape in shapes.values())
        self._letter = {**letter, "header": header.decode("latin-1"), "bytes": size, "again": False}
        self._attempts = 1
        self._send({"save": self._letter})

    def answer(self, wait: float = 0.0) -> Answer | None:
        """How the save in flight ended, if it has; a wait ends with None as well."""
        deadline = time.monotonic() + wait
        while self._letter is not None:
            assert self._sock is not None
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], left)[0]:
                return None
            told, _ = fd_frames.receive(self._sock)
            if told is not None:
                self._letter = None
                return told
            self._stop()
            if self._attempts == _ATTEMPTS:
                self._letter = None
                return {"failed": f"its writer died {_ATTEMPTS} times"}
            self._attempts += 1
            self._start()
            self._send({"save": {**self._letter, "again": True}})
        return None

    def close(self) -> None:
        self._stop()
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-S", "-c", processes.entry("oarlock.training.saving.writer")]
            self._writer = subprocess.Popen(
                [*words, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        if self._buffer is not None:
            self._send({}, (self._buffer.fd,))

    def _stop(self) -> None:
        if self._sock is not None:
            self._sock.close()
        if self._writer is not None:
            self._writer.wait()
        self._sock = self._writer = None

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        assert self._sock is not None
        try:
            fd_frames.send(self._sock, message, fds)
        except ConnectionError:
            pass  # its death is noticed, and made good, when the answer is asked for


def _copy(leaves: Mapping[str, Leaf], shapes: Mapping[str, Shape], buffer: Buffer) -> None:
    places = safetensors.places(shapes)
    # A collective must come in the same order on every rank, and before anything that only we do.
    ordered = sorted(leaves, key=lambda name: (not leaves[name].is_collective, name))

    def write(name: str) -> None:
        leaves[name].write(buffer.view(*places[name]))

    alone = [name for name in ordered if leaves[name].is_collective]
    others = ordered[len(alone) :]
    for name in alone:
        write(name)
    if sum(shape.bytes for shape in shapes.values()) < _LARGE:
        for name in others:
            write(name)
    else:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, others))
    if any(leaf.is_on_gpu for leaf in leaves.values()):
        torch: Any = sys.modules["torch"]
        torch.cuda.synchronize()


def _pin(buffer: Buffer, leaves: Iterable[Leaf]) -> None:
    """A GPU copies at full speed only into memory that cannot be moved. It has to be told
    before that memory goes: whoever got the same address later would be refused."""
    if any(leaf.is_on_gpu for leaf in leaves):
        torch: Any = sys.modules["torch"]
        runtime = torch.cuda.cudart()
        buffer.settle()
        if int(runtime.cudaHostRegister(buffer.address, buffer.size, 0)) == 0:
            buffer.on_close = lambda: runtime.cudaHostUnregister(buffer.address)


def join_collectives(leaves: Mapping[str, Leaf]) -> None:
    """What a rank that saves nothing has to do while rank 0 reads a value that is spread over all."""
    for name in sorted(leaves):
        if leaves[name].is_collective:
            leaves[name].write(memoryview(bytearray(leaves[name].shape.bytes)))
