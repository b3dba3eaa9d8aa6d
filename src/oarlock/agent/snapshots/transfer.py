"""Checkpoints between machines: the fence of a generation, and copies for machines without the volume.

On Kubernetes only the leader mounts the volume. A machine that is to run tasks first fetches the newest
checkpoint from the leading agent, over a connection that has shown the run's token like any other.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from oarlock.agent.net import control
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages, wire
from oarlock.agent.protocol.wire import SEAL, Seal
from oarlock.checkpoints.manifest import FILE_NAME, position
from oarlock.checkpoints.store import Store, verify

_MOST = 20  # checkpoints that a generation may try to resume from
_PATIENCE = 30.0  # seconds without a byte
_AT_ONCE = 8  # machines that are served together: more would only share the bandwidth
_AGAIN = 1.0  # seconds until the next attempt to start a thread
_CHUNK = 1 << 20  # bytes under one seal


def take_over(folder: str, run: str, generation: int) -> tuple[list[str], str | None]:
    """Raise the fence for a generation. The checkpoints to resume from, newest first; and trouble, if any."""
    if not folder or "://" in folder:
        return [], None
    store = Store(folder)
    try:
        store.raise_fence(run, generation)
        store.clean()  # before any task of this generation can be writing
    except OSError as error:
        return store.names()[:_MOST], f"{folder}: {error.strerror or error}"
    return store.names()[:_MOST], None


# The leading agent

Peer = tuple[socket.socket, Seal, bytes]  # the bytes are still to be sent, before anything else


class Giving:
    """Serves machines in the order in which they asked, `_AT_ONCE` at a time, each by a thread: the loop must
    not wait for gigabytes, and a thousand machines that resume must not be a thousand threads."""

    def __init__(self, loop: Loop, folder: str) -> None:
        self._loop = loop
        self._folder = folder
        self._waiting: deque[tuple[Peer, str]] = deque()
        self._busy = 0
        self._lock = threading.Lock()

    def give(self, peer: Peer, name: str) -> None:
        """Send a checkpoint as soon as it is this machine's turn."""
        with self._lock:
            self._waiting.append((peer, name))
            if self._busy >= _AT_ONCE:
                return
            self._busy += 1
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="oarlock-give", daemon=True).start()
        except RuntimeError:  # no more threads or processes are allowed at the moment
            with self._lock:
                self._busy -= 1
            self._loop.after("giving", _AGAIN, self._start_again)

    def _start_again(self) -> None:
        with self._lock:
            if not self._waiting or self._busy:
                return  # a thread that works takes the rest as well
            self._busy += 1
        self._start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy -= 1
                    return
                peer, name = self._waiting.popleft()
            _give(peer, self._folder, name)


def _give(peer: Peer, folder: str, name: str) -> None:
    sock, seal, before = peer
    with sock:
        try:
            if _has_left(sock):
                return
            sock.settimeout(_PATIENCE)
            found = [checkpoint for checkpoint in Store(folder).checkpoints() if checkpoint.name == name]
            files = [*found[0].manifest["files"], FILE_NAME] if found else []
            sizes = [[file, (found[0].path / file).stat().st_size] for file in files]
            sock.sendall(before + wire.sealed(wire.pack({"files": sizes}), seal))
            for file, size in sizes:
                _send_file(sock, seal, found[0].path / file, size)
        except (OSError, KeyError, TypeError):
            pass  # the peer is gone, or the checkpoint deleted or changed: the peer notices and asks again


def _has_left(sock: socket.socket) -> bool:
    """Whether the peer has closed the connection: one that waited too long asks again on another."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def _send_file(sock: socket.socket, seal: Seal, path: Path, size: int) -> None:
    """In chunks, each followed by its seal."""
    chunk = memoryview(bytearray(_CHUNK + SEAL))
    with path.open("rb") as file:
        while size:
            count = min(size, _CHUNK)
            if file.readinto(chunk[:count]) != count:
                raise OSError(f"{path} has become shorter")
            chunk[count : count + SEAL] = seal.of(chunk[:count])
            sock.sendall(chunk[: count + SEAL])
            size -= count


# A machine without the volume


class Getting:
    """Fetches checkpoints into this machine's folder."""

    def __init__(
        self, loop: Loop, address: tuple[str, int], token: str, folder: str, patience: float
    ) -> None:
        self._loop = loop
        self._address = address
        self._token = token
        self._store = Store(folder)
        self._patience = patience
        self._is_busy = False

    def has(self, names: Sequence[str]) -> bool:
        """Whether there is nothing to fetch: the newest of `names` is here."""
        return not names or names[0] in self._store.names()

    def get(self, names: Sequence[str], then: Callable[[str | None], None]) -> None:
        """Fetch the newest whole one, then call `then` in the loop with None, or with what went wrong."""
        if self._is_busy:
            return
        self._is_busy = True
        ours, theirs = socket.socketpair()
        result: list[str | None] = []

        def work() -> None:
            with theirs:
                result.append(self._fetch(names))

        def on_done() -> None:
            self._loop.forget(ours)
            ours.close()
            self._is_busy = False
            then(result[0] if result else "fetching it failed")

        self._loop.watch(ours, on_done)
        threading.Thread(target=work, name="oarlock-get", daemon=True).start()

    def _fetch(self, names: Sequence[str]) -> str | None:
        deadline = time.monotonic() + self._patience
        trouble = "it did not answer"
        self._store.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            while time.monotonic() < deadline:
                try:
                    if self._receive(name):
                        self._forget_all_but(names)
                        return None
                    break  # it is damaged, or was deleted: take the one before it
                except (OSError, ValueError, wire.WireError) as error:
                    trouble = str(error)
                    time.sleep(random.uniform(0.2, 0.6))
        if time.monotonic() < deadline:
            return None  # none of them is whole: the leader finds the same
        return f"no checkpoint came from the leader within {self._patience:g} s: {trouble}"

    def _receive(self, name: str) -> bool:
        if position(name) is None:
            return False  # no checkpoint has such a name, which could lead out of the folder
        draft = self._store.folder / f".saving-fetched-{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            dialogue = control.Dialogue(line, self._token)
            files = messages.files(dialogue.ask({"ask": "checkpoint", "name": name}))
            if not files:
                return False
            incoming = _Incoming(line, *dialogue.rest())
            for file, size in files:
                incoming.into(draft / file, size)
        return self._adopt(draft, name)

    def _adopt(self, draft: Path, name: str) -> bool:
        read = Store.read(draft)
        if isinstance(read, str) or verify(read) is not None:
            shutil.rmtree(draft, ignore_errors=True)
            return False
        self._store.adopt(draft, name)
        return True

    def _forget_all_but(self, names: Sequence[str]) -> None:
        """Free the room: this folder is this machine's alone, or nothing would have been fetched."""
        for checkpoint in self._store.checkpoints():
            if checkpoint.name not in names:
                self._store.delete(checkpoint)


class _Incoming:
    """Files in chunks. A chunk without the right seal is not written."""

    def __init__(self, line: socket.socket, before: bytes, seal: Seal) -> None:
        self._line = line
        self._before = before  # what came together with the answer
        self._seal = seal
        self._chunk = memoryview(bytearray(_CHUNK + SEAL))

    def into(self, path: Path, size: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(fd, "wb", buffering=0) as file:
            while size:
                chunk = self._next(min(size, _CHUNK))
                file.write(chunk)
                size -= len(chunk)

    def _next(self, size: int) -> memoryview:
        whole = self._chunk[: size + SEAL]
        filled = min(len(self._before), len(whole))
        whole[:filled], self._before = self._before[:filled], self._before[filled:]
        while filled < len(whole):
            count = self._line.recv_into(whole[filled:])
            if not count:
                raise ConnectionError("the leader closed the connection in the middle")
            filled += count
        if not self._seal.fits(bytes(whole[size:]), whole[:size]):
            raise wire.WireError("a piece of the checkpoint without this run's seal")
        return whole[:size]
