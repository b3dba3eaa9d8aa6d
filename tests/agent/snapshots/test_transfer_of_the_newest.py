"""Many machines ask for a checkpoint at once: a few threads serve them, one after the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.net import control
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.messages import Question
from oarlock.agent.protocol.wire import Seal, Unpacker
from oarlock.agent.snapshots import file_sender, transfer
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.checkpoints.store import Store
from tests.support.members import Leader, leading
from tests.support.transfers import get, resuming_from, save, whole
from tests.support.waiting import eventually


def test_a_hundred_that_do_not_read_are_eight_threads(tmp_path: Path) -> None:
    with leading(tmp_path / "leader", machines=2) as leader:
        name = save(Store(leader.folder / "checkpoints"), 30, bytes(32 << 20))  # more than sockets take in
        lines = []
        for _ in range(100):
            line = socket.create_connection(leader.address, timeout=300)
            control.Dialogue(line, leader.token)._send({"ask": "checkpoint", "name": name})
            lines.append(line)
        assert control.ask(leader.folder, {"ask": "stacks"})["ok"], "it still answers"
        assert _threads(leader) <= file_sender._AT_ONCE + 5, "the agent has a few of its own"
        for line in lines:
            line.close()
        # Those that have left are passed over, and whoever asks now is served.
        ours = Store(tmp_path / "ours")
        assert get(leader, ours, [name]) is None
        assert whole(ours) == [name]


def test_a_thread_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("can't start new thread")] * 3
    start = threading.Thread.start

    def fail_first(self: threading.Thread) -> None:
        if failures:
            raise failures.pop()
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail_first)
    monkeypatch.setattr(file_sender, "_AGAIN", 0.01)
    save(Store(tmp_path), 30)
    loop = Loop()
    sender = file_sender.FileSender(loop, str(tmp_path), ProgramFolder(tmp_path, tmp_path))
    theirs, ours = socket.socketpair()
    sender.send((ours, Seal(b"key"), b""), Question(file_sender.CHECKPOINT, "step-0000000030-g1"))
    theirs.setblocking(False)
    arrived: list[Any] = []
    unpacker = Unpacker()
    unpacker.seal = Seal(b"key")

    def hear() -> bool:
        loop.after("turn", 0.01, lambda: None)
        loop.turn()
        try:
            for message in unpacker.feed(theirs.recv(1 << 16)):
                arrived.append(message)
                break
        except BlockingIOError:
            pass
        return bool(arrived)

    with theirs:
        eventually(hear, "the answer")
    assert [file for file, _ in messages.files(arrived[0])] == ["state", "manifest.json"]


def _threads(leader: Leader) -> int:
    status = Path(f"/proc/{leader.process.pid}/status").read_text()
    return int(status.split("Threads:")[1].split()[0])


@contextmanager
def relayed(
    to: tuple[str, int], changes: dict[bytes, bytes]
) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """Somebody on the way between two machines, who changes what the second says: where, and what passed."""
    passed: list[bytes] = []

    def carry(source: socket.socket, target: socket.socket, changes: dict[bytes, bytes]) -> None:
        try:
            while data := source.recv(1 << 16):
                passed.extend(old for old in changes if old in data)
                for old, new in changes.items():
                    data = data.replace(old, new)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def connect(client: socket.socket) -> None:
        with client, socket.create_connection(to) as server:
            back = threading.Thread(target=carry, args=(client, server, {}))
            back.start()
            carry(server, client, changes)
            back.join()

    def serve() -> None:
        threads = []
        try:
            while True:
                threads.append(threading.Thread(target=connect, args=(listener.accept()[0],)))
                threads[-1].start()
        except OSError:
            for thread in threads:
                thread.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname(), passed
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_a_checkpoint_that_is_changed_on_the_way_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor with sums that fit."""
    with leading(tmp_path / "leader", machines=2) as leader:
        theirs, other, ours = (Store(tmp_path / name) for name in ("leader/run/checkpoints", "other", "ours"))
        name = save(theirs, 30, b"weights")
        save(other, 30, b"WEIGHTS")
        sums = [
            next(iter(store.checkpoints())).manifest["files"]["state"]["crc32"].encode()
            for store in (theirs, other)
        ]
        changes = {b"weights": b"WEIGHTS", sums[0]: sums[1]}
        loop, answers = Loop(), list["str | None"]()
        with relayed(leader.address, changes) as (address, passed):
            getting = transfer.Getting(loop, address, leader.token, str(ours.folder), patience=2)
            getting.get(resuming_from([name]), answers.append)
            while not answers:
                loop.turn()
        assert set(passed) >= {b"weights"}, "it was on the way"
        assert answers[0] is not None
        assert "seal" in answers[0]
        assert ours.names() == []
