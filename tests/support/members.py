"""Agents without a machine: one process that speaks the real protocol over many connections."""

from __future__ import annotations

import json
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oarlock.agent.net.connection import keep_alive
from oarlock.agent.protocol import wire
from oarlock.agent.protocol.spec import IngestSpec, LimitsSpec, Program, Spec
from oarlock.agent.protocol.wire import Message, Seal, Unpacker, pack, sealed
from oarlock.run.run_events import Event, decode
from oarlock.run.run_state import RunState, fold
from tests.support.waiting import eventually


class Leader:
    """A real leading agent that waits for `machines - 1` others."""

    def __init__(
        self,
        folder: Path,
        machines: int,
        program: str = "import time; time.sleep(600)",
        ingest: IngestSpec | None = None,
        **limits: Any,
    ):
        self.members: list[Member] = []
        self.is_over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()
        self.folder = folder / "run"
        self.folder.mkdir(parents=True)
        place = folder / "program"
        place.mkdir()
        (place / "program.py").write_text(program)
        self.token = secrets.token_hex(32)
        (self.folder / "token").write_text(self.token)
        (self.folder / "events.jsonl").touch()
        self.spec = Spec(
            run="led",
            folder=str(self.folder),
            cwd=str(place),
            program=Program("program", "program.py"),
            sizes={"worker": machines},
            folders={name: str(self.folder / name) for name in ("model", "checkpoints", "data")},
            ingest=ingest,
            limits=LimitsSpec(**{"rendezvous": 600.0, **limits}),  # a slow test is nobody's failure
            machines=machines,
            brings_crew=False,
        )
        (self.folder / "agent.json").write_text(self.spec.to_json())
        self.start()

    def start(self) -> None:
        (self.folder / "address").unlink(missing_ok=True)
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oarlock.agent", str(self.folder)], stdout=log, stderr=log
            )
        self.until(lambda: (self.folder / "address").exists(), "its address")

    @property
    def address(self) -> tuple[str, int]:
        host, port = (self.folder / "address").read_text().strip().rsplit(":", 1)
        return host, int(port)

    def events(self) -> list[Event]:
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [event for line in lines if (event := decode(line))]

    def state(self) -> RunState:
        return fold("led", self.events())

    def until(self, done: Callable[[], Any], what: str, seconds: float = 300.0) -> Any:
        def look() -> Any:
            found = done()
            assert found or self.process.poll() is None, f"the agent ended before {what}: {self.log()}"
            return found

        return eventually(look, what, seconds, every=0.01, evidence=self.log)

    def log(self) -> str:
        return (self.folder / "agent.log").read_text() + "\n".join(map(str, self.events()[-5:]))

    def peak_memory(self) -> int:
        """Bytes, of the agent alone."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for member in self.members:
            member.close()

    def _beat(self) -> None:
        """As real agents do, whatever the test is about: who is silent for five seconds is cut off."""
        while not self.is_over.wait(1.0):
            for member in [one for one in self.members if one.is_seated]:
                try:
                    member.send({"beat": 1})
                except OSError:
                    pass  # one of us has closed it


@contextmanager
def leading(folder: Path, machines: int, **more: Any) -> Iterator[Leader]:
    leader = Leader(folder, machines, **more)
    try:
        yield leader
    finally:
        leader.close()
        leader.is_over.set()


class Member:
    """One agent's connection, proven and seated; it hosts nothing."""

    def __init__(
        self,
        leader: Leader,
        name: str,
        uid: str | None = None,
        machine: str | None = None,
        generation: int = 0,
    ) -> None:
        self.leader = leader
        self.name = name
        self.generation = generation
        uid = uid or secrets.token_hex(8)
        self.hello = {
            "name": name,
            "uid": uid,
            "machine": machine or uid,
            "host": "127.0.0.1",
        }
        self.wishes: list[Message] = []
        self.refused: str | None = None
        self.is_seated = False
        self.is_closed = False
        self.sending = threading.Lock()
        self.unpacker = Unpacker()
        self.seal: Seal | None = None
        self.sock = socket.create_connection(leader.address, timeout=300)
        keep_alive(self.sock)  # what is sent is on its way at once
        leader.members.append(self)

    def feed(self) -> None:
        """Read what has come and answer it."""
        data = self.sock.recv(1 << 20)
        if not data:
            self.is_closed = True
            return
        for message in self.unpacker.feed(data):
            if "challenge" in message:
                token, challenge, nonce = self.leader.token, message["challenge"], wire.nonce()
                self.seal = Seal(wire.greeting_key(token, challenge))
                self.send(wire.greeting(self.hello, nonce))
                session = wire.session(token, challenge, nonce)
                self.seal, self.unpacker.seal = Seal(session.agent), Seal(session.coordinator)
            elif "welcome" in message:
                self.unpacker.limit = wire.MEMBER_LIMIT
                self.send({"status": self.status()})
                self.is_seated = True
            elif "wish" in message:
                self.wishes.append(message["wish"])
            elif "refused" in message:
                self.refused = message["refused"]

    @staticmethod
    def status(**more: Any) -> Message:
        usual = {
            "generation": 0,
            "cleared": 0,
            "ready": True,
            "ports": [20000],
            "slots": {"worker": 1},
            "tasks": [],
        }
        return {**usual, **more}

    def send(self, message: Message) -> None:
        """Under a lock: another thread sends the beats, and the order is part of the seals."""
        with self.sending:
            frame = pack(message)
            self.sock.sendall(frame if self.seal is None else sealed(frame, self.seal))

    def until(self, done: Callable[[Member], Any], what: str, seconds: float = 300.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := done(self)):
            left = deadline - time.monotonic()
            told = f"{self.name}: no {what}; wishes {json.dumps(self.wishes)[:500]}"
            assert left > 0, told
            assert not self.is_closed, told
            self.sock.settimeout(left)
            self.feed()
        return found

    def until_run(self) -> Message:
        found: Message = self.until(
            lambda one: next((w for w in one.wishes if w["do"] == "run"), None), "gang"
        )
        return found

    def close(self) -> None:
        self.is_seated = False
        self.sock.close()


def attend(members: list[Member], done: Callable[[], bool], seconds: float = 300.0) -> bool:
    """Serve many members at once until `done`."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.sock, selectors.EVENT_READ, member)
        while not done():
            if time.monotonic() > deadline:
                return False
            for key, _ in selector.select(0.2):
                key.data.feed()
                if key.data.is_closed:
                    selector.unregister(key.fileobj)
    return True
