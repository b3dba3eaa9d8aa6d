"""Files between machines: the fence of a generation, and copies for machines without the volume.

On Kubernetes only the leader mounts the volume. A machine that is to run tasks first fetches the newest
checkpoint, and what the program wrote beside itself, from the leading agent, which checks the run's token.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from oarlock.agent.net import control
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages, wire
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Seal
from oarlock.agent.snapshots.program_files import ProgramFolder, WrittenFile
from oarlock.agent.snapshots.sealed_files import Incoming, send_file
from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import FILE_NAME, position
from oarlock.checkpoints.store import Store, verify
from oarlock.run.contract import Gang

CHECKPOINT, LIST, FILE, UNSCORED = "checkpoint", "files", "file", "unscored"  # what a machine asks for
MOST = 20  # checkpoints that a generation may try to resume from
_PATIENCE = 30.0  # seconds without a byte
_AT_ONCE = 8  # machines that are served together: more would only share the bandwidth
_NICE = 10  # of a thread that feeds an evaluator: training goes first, where threads have priorities
_AGAIN = 1.0  # seconds until the next attempt to start a thread


def take_over(folder: str, run: str, generation: int) -> tuple[list[str], str | None]:
    """Raise the fence for a generation. The checkpoints to resume from, newest first; and trouble, if any."""
    if not folder or "://" in folder:
        return [], None
    store = Store(folder)
    try:
        store.raise_fence(run, generation)
        store.clean()  # before any task of this generation can be writing
    except OSError as error:
        return store.names()[:MOST], f"{folder}: {error.strerror or error}"
    return store.names()[:MOST], None


# The leading agent

Peer = tuple[socket.socket, Seal, bytes]  # the bytes are still to be sent, before anything else


class Giving:
    """Serves machines in the order in which they asked, `_AT_ONCE` at a time, each by a thread: the loop must
    not wait for gigabytes, and a thousand machines that resume must not be a thousand threads."""

    def __init__(self, loop: Loop, folder: str, program: ProgramFolder) -> None:
        self._loop = loop
        self._store = Store(folder)
        self._program = program
        self._waiting: deque[tuple[Peer, Question]] = deque()
        self._busy = 0
        self._lock = threading.Lock()

    def give(self, peer: Peer, question: Question) -> None:
        """Send what this machine asks for as soon as it is its turn."""
        with self._lock:
            self._waiting.append((peer, question))
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
                peer, question = self._waiting.popleft()
            self._answer(peer, question)

    def _answer(self, peer: Peer, question: Question) -> None:
        sock, seal, before = peer
        with sock:
            try:
                if _has_left(sock):
                    return
                sock.settimeout(_PATIENCE)
                if question.ask == UNSCORED:
                    sock.sendall(before + wire.sealed(wire.pack({"names": self._unscored()}), seal))
                    return
                if question.ask == LIST:
                    listed = [[file.name, file.size, file.modified] for file in self._program.written()]
                    sock.sendall(before + wire.sealed(wire.pack({"files": listed}), seal))
                    return
                if question.do == UNSCORED and sys.platform == "linux":
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
                files = self._files(question)
                sizes = [path.stat().st_size for _, path in files]
                told = [[name, size] for (name, _), size in zip(files, sizes)]
                sock.sendall(before + wire.sealed(wire.pack({"files": told}), seal))
                for (_, path), size in zip(files, sizes):
                    send_file(sock, seal, path, size)
            except (OSError, KeyError, TypeError):
                pass  # the peer is gone, or the file deleted or changed: the peer notices and asks again

    def _unscored(self) -> list[str]:
        """The names of complete checkpoints that no evaluator has scored, oldest first."""
        held = self._store.checkpoints()
        scored = score_file.read(self._store.folder).names(held)
        return [checkpoint.name for checkpoint in held if checkpoint.name not in scored]

    def _files(self, question: Question) -> list[tuple[str, Path]]:
        asked = question.name or ""
        if question.ask == FILE:
            return [("file", path) for path in self._program.paths(asked)]
        found = [checkpoint for checkpoint in self._store.checkpoints() if checkpoint.name == asked]
        names = [*found[0].manifest["files"], FILE_NAME] if found else []
        return [(name, found[0].path / name) for name in names]


def _has_left(sock: socket.socket) -> bool:
    """Whether the peer has closed the connection: one that waited too long asks again on another."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


# A machine without the volume


class Getting:
    """Fetches checkpoints, and what the leader's program has written, into this machine's folders."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        token: str,
        folder: str,
        patience: float,
        program: ProgramFolder | None = None,
    ) -> None:
        self._loop = loop
        self._address = address
        self._token = token
        self._store = Store(folder)
        self._patience = patience
        self._program = program  # unless all machines have the same one
        self._is_busy = False
        self._receiving = threading.Lock()  # an evaluator's feed receives, too
        self.has_unscored: Callable[[], bool] = lambda: True  # `Supply.has_unscored`; a feed puts its own

    def has(self, gang: Gang) -> bool:
        """Whether there is nothing to fetch: what the gang's tasks resume from is here."""
        return self._has_checkpoint(gang.checkpoints) and self._has_files(gang.files)

    def _has_checkpoint(self, names: Sequence[str]) -> bool:
        return not names or names[0] in self._store.names()

    def _has_files(self, version: str) -> bool:
        return not version or self._program is None or self._program.fetched == version

    def unscored(self) -> list[str]:
        """Ask the leading agent for the names of checkpoints that are not scored, oldest first. Raises
        OSError, ValueError or WireError."""
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            return messages.names(control.Dialogue(line, self._token).ask({"ask": UNSCORED}))

    def get(self, gang: Gang, then: Callable[[str | None], None]) -> None:
        """Fetch what is not here, then call `then` in the loop with None, or with what went wrong."""
        if self._is_busy:
            return
        self._is_busy = True
        ours, theirs = socket.socketpair()
        result: list[str | None] = []

        def work() -> None:
            with theirs:
                result.append(self._fetch(gang))

        def on_done() -> None:
            self._loop.forget(ours)
            ours.close()
            self._is_busy = False
            then(result[0] if result else "fetching it failed")

        self._loop.watch(ours, on_done)
        threading.Thread(target=work, name="oarlock-get", daemon=True).start()

    def _fetch(self, gang: Gang) -> str | None:
        trouble = None if self._has_checkpoint(gang.checkpoints) else self._fetch_checkpoint(gang.checkpoints)
        if trouble is None and not self._has_files(gang.files):
            trouble = self._fetch_files(gang.files)
        return trouble

    def _fetch_checkpoint(self, names: Sequence[str]) -> str | None:
        deadline = time.monotonic() + self._patience
        trouble = "it did not answer"
        self._store.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            while time.monotonic() < deadline:
                try:
                    if self.receive(name):
                        self._forget_all_but(names)
                        return None
                    break  # it is damaged, or was deleted: take the one before it
                except (OSError, ValueError, wire.WireError) as error:
                    trouble = str(error)
                    time.sleep(random.uniform(0.2, 0.6))
        if time.monotonic() < deadline:
            return None  # none of them is whole: the leader finds the same
        return f"no checkpoint came from the leader within {self._patience:g} s: {trouble}"

    def receive(self, name: str, is_hurried: bool = True) -> bool:
        """Fetch one checkpoint, for tasks that wait for it (`is_hurried`). False if it is damaged or gone."""
        if position(name) is None:
            return False  # no checkpoint has such a name, which could lead out of the folder
        draft = self._store.folder / f".saving-fetched-{name}"
        with self._receiving:
            if _is_whole(self._store.folder / name):
                return True
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            try:
                return self._ask(CHECKPOINT, name, draft, is_hurried) and self._adopt(draft, name)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def _ask(self, what: str, name: str, folder: Path, is_hurried: bool = True) -> bool:
        """Fetch the files that the leader sends for this question into a folder. Whether there were any."""
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            dialogue = control.Dialogue(line, self._token)
            question = {"ask": what, "name": name, **({} if is_hurried else {"do": UNSCORED})}
            files = messages.files(dialogue.ask(question))
            incoming = Incoming(line, *dialogue.rest())
            for file, size in files:
                incoming.into(folder / file, size)
        return bool(files)

    def _fetch_files(self, version: str) -> str | None:
        """What the leader's program has written beside itself: all of it that differs here."""
        assert self._program is not None
        deadline = time.monotonic() + self._patience
        while True:
            try:
                for file in self._program.lacking(self._listed()):
                    with self._program.receiving(file) as folder:
                        self._ask(FILE, file.name, folder)
                self._program.set_fetched(version)
                return None
            except (OSError, ValueError, wire.WireError) as error:
                if time.monotonic() > deadline:
                    return f"the files beside the leader's program did not arrive: {error}"
                time.sleep(random.uniform(0.2, 0.6))

    def _listed(self) -> list[WrittenFile]:
        with socket.create_connection(self._address, timeout=_PATIENCE) as line:
            listed = control.Dialogue(line, self._token).ask({"ask": LIST})
        return [WrittenFile(*one) for one in messages.program_files(listed)]

    def _adopt(self, draft: Path, name: str) -> bool:
        if is_whole := _is_whole(draft):
            self._store.adopt(draft, name)
        return is_whole

    def _forget_all_but(self, names: Sequence[str]) -> None:
        """Free the room: this folder is this machine's alone, or nothing would have been fetched."""
        for checkpoint in self._store.checkpoints():
            if checkpoint.name not in names:
                self._store.delete(checkpoint)


def _is_whole(folder: Path) -> bool:
    read = Store.read(folder)
    return not isinstance(read, str) and verify(read) is None
