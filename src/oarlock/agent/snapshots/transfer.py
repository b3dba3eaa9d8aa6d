"""Checkpoints, as agents deal with them: the fence when a generation forms, and handing them to machines
that do not see the folder.

On Kubernetes only the leader mounts the volume. So a machine that is to run tasks fetches the newest
checkpoint first, from the leading agent, over a connection that has shown the run's token like any other.
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
from oarlock.checkpoints.store import Store, position, verify

_MOST = 20  # checkpoints that are worth trying
_PATIENCE = 30.0  # seconds without a byte
_AT_ONCE = 8  # machines that are served together: more would only share the line
_AGAIN = 1.0  # seconds until a thread is tried again
_CHUNK = 1 << 20  # bytes under one seal


def take_over(folder: str, run: str, generation: int) -> tuple[list[str], str | None]:
    """Shut older generations out. The checkpoints to go on from, newest first; and trouble, if any."""
    if not folder or "://" in folder:
        return [], None
    store = Store(folder)
    try:
        store.raise_fence(run, generation)
        store.clean()  # while nobody of this generation can be writing yet
    except OSError as error:
        return store.names()[:_MOST], f"{folder}: {error.strerror or error}"
    return store.names()[:_MOST], None


# Giving

Line = tuple[socket.socket, Seal, bytes]  # and what is still to be sent on it, before anything else


class Giving:
    """Machines that ask are served in the order in which they came, `_AT_ONCE` at a time, each by a thread:
    the loop must not wait for gigabytes, and a thousand machines that resume are not a thousand threads."""

    def __init__(self, loop: Loop, folder: str) -> None:
        self._loop = loop
        self._folder = folder
        self._waiting: deque[tuple[Line, str]] = deque()
        self._busy = 0
        self._lock = threading.Lock()

    def give(self, line: Line, name: str) -> None:
        with self._lock:
            self._waiting.append((line, name))
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
            self._loop.after("giving", _AGAIN, self._go_on)

    def _go_on(self) -> None:
        with self._lock:
            if not self._waiting or self._busy:
                return  # whoever works takes the rest as well
            self._busy += 1
        self._start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy -= 1
                    return
                line, name = self._waiting.popleft()
            _give(line, self._folder, name)


def _give(line: Line, folder: str, name: str) -> None:
    sock, seal, before = line
    with sock:
        try:
            if _has_left(sock):
                return
            sock.settimeout(_PATIENCE)
            found = [one for one in Store(folder).checkpoints() if one.name == name]
            files = [*found[0].manifest["files"], "manifest.json"] if found else []
            sizes = [[file, (found[0].path / file).stat().st_size] for file in files]
            sock.sendall(before + wire.sealed(wire.pack({"files": sizes}), seal))
            for file, size in sizes:
                _send_file(sock, seal, found[0].path / file, size)
        except (OSError, KeyError, TypeError):
            pass  # gone, or deleted or changed meanwhile: the other side notices and asks again


def _has_left(sock: socket.socket) -> bool:
    """Who waits for long enough asks again on another connection."""
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


# Getting


class Getting:
    """One machine's supply. `get` calls back, in the loop, with None or with why there is none."""

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
        """Whether there is nothing to fetch: the newest one is here."""
        return not names or names[0] in self._store.names()

    def get(self, names: Sequence[str], then: Callable[[str | None], None]) -> None:
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
        trouble = "nobody answered"
        self._store.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            while time.monotonic() < deadline:
                try:
                    if self._receive(name):
                        self._forget_all_but(names)
                        return None
                    break  # it is torn, or was deleted: the one before it
                except (OSError, ValueError, wire.WireError) as error:
                    trouble = str(error)
                    time.sleep(random.uniform(0.2, 0.6))
        if time.monotonic() < deadline:
            return None  # none of them is whole: the leader finds that, too
        return f"no checkpoint came from the leader within {self._patience:g} s: {trouble}"

    def _receive(self, name: str) -> bool:
        if position(name) is None:
            return False  # no checkpoint is called that; it could lead out of the folder
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
        """This folder is ours alone, or nothing would have been fetched; it may be small."""
        for checkpoint in self._store.checkpoints():
            if checkpoint.name not in names:
                self._store.delete(checkpoint)


class _Incoming:
    """Files in chunks. What has not the right seal is not written."""

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
                raise ConnectionError("the leader stopped in the middle")
            filled += count
        if not self._seal.fits(bytes(whole[size:]), whole[:size]):
            raise wire.WireError("a piece of the checkpoint without this run's seal")
        return whole[:size]
