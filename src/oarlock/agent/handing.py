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
from collections.abc import Callable, Sequence
from pathlib import Path

from oarlock.agent import control, wire
from oarlock.agent.loop import Loop
from oarlock.training.store import Store, verify

_MOST = 20  # checkpoints that are worth trying
_PATIENCE = 30.0  # seconds without a byte
_AT_ONCE = threading.BoundedSemaphore(8)  # machines that are served together: more would only share the line
_CHUNK = 1 << 20


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


def give(sock: socket.socket, folder: str, name: str) -> None:
    """In a thread of its own: the loop must not wait for gigabytes."""
    threading.Thread(target=_give, args=(sock, folder, name), name="oarlock-give", daemon=True).start()


def _give(sock: socket.socket, folder: str, name: str) -> None:
    with sock, _AT_ONCE:
        sock.setblocking(True)
        sock.settimeout(_PATIENCE)
        try:
            found = [one for one in Store(folder).checkpoints() if one.name == name]
            files = [*found[0].manifest["files"], "manifest.json"] if found else []
            sizes = [[file, (found[0].path / file).stat().st_size] for file in files]
            sock.sendall(wire.pack({"files": sizes}))
            for file in files:
                with (found[0].path / file).open("rb") as opened:
                    sock.sendfile(opened)
        except OSError:
            pass  # gone, or deleted meanwhile: the other side notices and asks again


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
        draft = self._store.folder / f".saving-fetched-{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            dialogue = control.Dialogue(line, self._token)
            files = dialogue.ask({"ask": "checkpoint", "name": name}).get("files")
            if not files:
                return False
            incoming = _Incoming(line, dialogue.rest())
            for file, size in files:
                incoming.into(draft / Path(file).name, size)
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
    def __init__(self, line: socket.socket, before: bytes) -> None:
        self._line = line
        self._before = before  # what came together with the answer

    def into(self, path: Path, size: int) -> None:
        buffer = memoryview(bytearray(_CHUNK))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(fd, "wb", buffering=0) as file:
            piece, self._before = self._before[:size], self._before[size:]
            file.write(piece)
            left = size - len(piece)
            while left:
                count = self._line.recv_into(buffer, min(left, _CHUNK))
                if not count:
                    raise ConnectionError("the leader stopped in the middle")
                file.write(buffer[:count])
                left -= count
