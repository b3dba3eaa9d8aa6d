"""What the leading agent sends to machines that cannot see its folders: checkpoints, files of the program,
prepared data. It has checked the run's token before."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Protocol

from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import wire
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Seal
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.agent.snapshots.sealed_files import send_file
from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import FILE_NAME
from oarlock.checkpoints.store import Store

# What a machine asks for.
CHECKPOINT, LIST, FILE, UNSCORED, OFFER, DATA = "checkpoint", "files", "file", "unscored", "offer", "data"
KINDS = (CHECKPOINT, LIST, FILE, UNSCORED, OFFER, DATA)
_PATIENCE = 30.0  # seconds without a byte
_AT_ONCE = 8  # machines served at the same time: more would only share the bandwidth
_NICE = 10  # for threads that feed evaluators: training goes first, if threads have priorities
_AGAIN = 1.0  # seconds until the next attempt to start a thread

Peer = tuple[socket.socket, Seal, bytes]  # the bytes have to be sent before anything else


class DataOffer(Protocol):
    """The prepared data of this machine: `ingest.data_copy.Offer`."""

    def to_data(self) -> wire.Message:
        """The list of its files, once it is complete."""

    def paths(self, name: str) -> list[Path]:
        """The file of that name, or none."""


class FileSender:
    """Serves machines in the order of their questions, `_AT_ONCE` at a time, each in a thread: the loop must
    not wait for gigabytes, and a thousand machines that resume must not be a thousand threads."""

    def __init__(
        self, loop: Loop, folder: str, program: ProgramFolder, data: DataOffer | None = None
    ) -> None:
        self._loop = loop
        self._data = data
        self._store = Store(folder)
        self._program = program
        self._waiting: deque[tuple[Peer, Question]] = deque()
        self._busy = 0
        self._lock = threading.Lock()

    def send(self, peer: Peer, question: Question) -> None:
        """Send what this machine asks for as soon as its turn comes."""
        with self._lock:
            self._waiting.append((peer, question))
            if self._busy >= _AT_ONCE:
                return
            self._busy += 1
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="oarlock-send", daemon=True).start()
        except RuntimeError:  # the system allows no more threads or processes at the moment
            with self._lock:
                self._busy -= 1
            self._loop.after("file sender", _AGAIN, self._start_again)

    def _start_again(self) -> None:
        with self._lock:
            if not self._waiting or self._busy:
                return  # the threads at work serve the rest, too
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
                if question.ask == OFFER:
                    offer = self._data.to_data() if self._data is not None else {"state": "each", "files": []}
                    sock.sendall(before + wire.sealed(wire.pack(offer), seal))
                    return
                if question.do == UNSCORED and sys.platform == "linux":
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
                files = self._files(question)
                sizes = [path.stat().st_size for _, path in files]
                headers = [[name, size] for (name, _), size in zip(files, sizes)]
                sock.sendall(before + wire.sealed(wire.pack({"files": headers}), seal))
                for (_, path), size in zip(files, sizes):
                    send_file(sock, seal, path, size)
            except (OSError, KeyError, TypeError):
                pass  # the peer is gone, or the file deleted or changed: the peer notices and asks again

    def _unscored(self) -> list[str]:
        """The names of complete checkpoints without a score, oldest first."""
        held = self._store.checkpoints()
        scored = score_file.read(self._store.folder).names(held)
        return [checkpoint.name for checkpoint in held if checkpoint.name not in scored]

    def _files(self, question: Question) -> list[tuple[str, Path]]:
        asked = question.name or ""
        if question.ask == FILE:
            return [("file", path) for path in self._program.paths(asked)]
        if question.ask == DATA:
            return [("file", path) for path in (self._data.paths(asked) if self._data is not None else [])]
        found = [checkpoint for checkpoint in self._store.checkpoints() if checkpoint.name == asked]
        names = [*found[0].manifest["files"], FILE_NAME] if found else []
        return [(name, found[0].path / name) for name in names]


def _has_left(sock: socket.socket) -> bool:
    """Whether the peer has closed the connection: a peer that waited too long asks again on another."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
