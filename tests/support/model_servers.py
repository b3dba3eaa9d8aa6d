"""A real model server in its own processes, small models for it, and clients that count what goes wrong."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from oarlock.models.model_versions import new_version
from oarlock.serving.fleet import announcement
from oarlock.serving.settings import Settings
from tests.support.waiting import eventually

MANIFEST = {
    "version": 1,
    "format": "python",
    "entry": "model.py",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 2]}],
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": [None]},
        {"name": "who", "dtype": "int64", "shape": [None]},
    ],
}
# Answers factor * (a + b) for each row, and which process it is. 666 kills it, 99 takes until `go` is there.
PROGRAM = """
import os, signal, time
import numpy as np

class Model:
    def __init__(self, folder):
        self.folder = folder

    def predict(self, inputs):
        x = inputs["x"]
        if (x == 666).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (x == 99).any():
            (self.folder / "busy").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        if (x < 0).any():
            raise ValueError("negative numbers are not added")
        return {"y": FACTOR * x.sum(axis=1), "who": np.full(len(x), os.getpid())}

def load(folder):
    return Model(folder)
"""
NONSENSE = [
    *(
        b"",
        b"{",
        b"[]",
        b'{"inputs": {}}',
        b'{"inputs": {"x": [[1, 2, 3]]}}',
        b'{"inputs": {"x": [["a", "b"]]}}',
    ),
    *(b'{"inputs": {"z": [[1, 2]]}}', b'{"inputs": {"x": [[-1, 2]]}}', b"\x00\xff" * 100, b"[" * 5000),
]
BROKEN = "def load(folder):\n    raise RuntimeError('the weights are missing')\n"


def publish(
    folder: Path, factor: int, *, program: str = PROGRAM, scores: dict[str, float] | None = None
) -> None:
    """Add a version, whole and at once."""
    with new_version(folder) as draft:
        (draft / "model.py").write_text(program.replace("FACTOR", str(factor)))
        (draft / "oarlock.json").write_text(json.dumps({**MANIFEST, "scores": scores or {}}))


@dataclass
class ModelServer:
    """A supervisor and its replicas."""

    process: subprocess.Popen[bytes]
    settings_file: Path
    log: Path
    _told: list[announcement.Announcement] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings.from_json(self.settings_file.read_text())

    def change(self, **changes: Any) -> None:
        """Change settings while it runs."""
        draft = self.settings_file.with_suffix(".draft")
        draft.write_text(replace(self.settings, **changes).to_json())
        draft.replace(self.settings_file)

    @property
    def told(self) -> announcement.Announcement:
        """What it says of itself; waits until it answers."""
        path = announcement.path_for(self.settings_file)

        def look() -> announcement.Announcement | None:
            assert self.process.poll() is None, self.said
            return announcement.read(path)

        return eventually(look, "announcement", evidence=lambda: self.said)

    @property
    def url(self) -> str:
        if not self._told:
            self._told.append(self.told)
        return self._told[0].url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def until_said(self, text: str) -> None:
        eventually(lambda: text in self.said, f"{text!r} in the log", evidence=lambda: self.said)

    @property
    def replicas(self) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.process.pid).children() if _lives(child)]

    def ask(self, a: float, b: float, version: int | None = None) -> tuple[float, int]:
        """The answer to one row, and who gave it, over a connection of its own."""
        which = f"/versions/{version}" if version else ""
        body = json.dumps({"inputs": {"x": [[a, b]]}}).encode()
        where = f"{self.url}/v1/models/{self.settings.name}{which}:predict"
        with urllib.request.urlopen(where, body, timeout=120) as answer:
            outputs = json.load(answer)["outputs"]
        return outputs["y"][0], outputs["who"][0]

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=120) as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
        }

    def until_factor(self, factor: int) -> None:
        """Until a new connection gets a version's answer."""
        eventually(lambda: self.ask(1, 2)[0] == 3 * factor, f"factor {factor}", evidence=lambda: self.said)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@contextmanager
def model_server(folder: Path, place: Path, **settings: Any) -> Iterator[ModelServer]:
    """Serve a folder. Whatever a test does, no process is left, and none was left by the server itself."""
    file, log = place / "serving.json", place / "server.log"
    given = {"name": "sums", "source": str(folder), "port": 0, "every": 0.1, "grace": 60.0, **settings}
    file.write_text(Settings(**given).to_json())
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "oarlock.serving", str(file)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield ModelServer(process, file, log)
        if process.poll() is None:
            process.terminate()
            process.wait(120)
        eventually(lambda: not _group(process.pid), "end of all replicas")
    finally:
        for left in _group(process.pid):
            os.kill(left, signal.SIGKILL)
        process.kill()
        process.wait(60)


def _lives(process: psutil.Process) -> bool:
    """It may end between two looks."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _group(leader: int) -> list[int]:
    """The processes of a session that are not dead."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.pid != leader and os.getsid(one.pid) == leader and one.status() != "zombie":
                found.append(one.pid)
        except (psutil.Error, OSError):
            continue
    return found


class Client(threading.Thread):
    """Asks over one connection that is kept alive, and checks every answer.

    `factors` are those that may answer; a failure is kept with its reason. One that is `rude` sends nonsense
    every tenth time.
    """

    def __init__(
        self, server: ModelServer, number: int, factors: Container[int], is_rude: bool = False
    ) -> None:
        super().__init__(daemon=True)
        self.is_rude = is_rude
        self.refused = 0
        self.server = server
        self.number = number
        self.factors = factors
        self.answers = 0
        self.versions: set[int] = set()
        self.failures: list[str] = []
        self.wrong: list[str] = []
        self._ended = threading.Event()
        self._port, self._name = server.port, server.settings.name

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        turn = 0
        while not self._ended.is_set():
            turn += 1
            a, b = self.number + 1, turn % 50
            try:
                if self.is_rude and turn % 10 == 0:
                    self._ask_nonsense(connection, turn)
                else:
                    self._ask(connection, a, b)
            except (OSError, http.client.HTTPException, ValueError) as problem:
                self.failures.append(f"{type(problem).__name__}: {problem}")
                connection.close()
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, a: int, b: int) -> None:
        body = json.dumps({"inputs": {"x": [[a, b]]}})
        connection.request("POST", f"/v1/models/{self._name}:predict", body)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        if answer.status != 200:
            self.failures.append(f"{answer.status}: {content}")
            return
        factor = content["outputs"]["y"][0] / (a + b)
        if factor not in self.factors:
            self.wrong.append(f"{a} + {b} gave {factor} times the sum")
        self.versions.add(round(factor))
        self.answers += 1

    def _ask_nonsense(self, connection: http.client.HTTPConnection, turn: int) -> None:
        body = NONSENSE[turn // 10 % len(NONSENSE)]
        connection.request("POST", f"/v1/models/{self._name}:predict", body)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 400:
            self.wrong.append(f"{body!r} gave {answer.status}: {text}")
        self.refused += 1

    def stop(self) -> None:
        self._ended.set()
        self.join(300)
        assert not self.is_alive()


@contextmanager
def clients(
    server: ModelServer, count: int, factors: Container[int], is_rude: bool = False
) -> Iterator[list[Client]]:
    """So many clients at once."""
    found = [Client(server, number, factors, is_rude) for number in range(count)]
    for one in found:
        one.start()
    try:
        yield found
    finally:
        for one in found:
            one.stop()


def refusal(server: ModelServer, body: bytes, path: str = "") -> tuple[int, str]:
    """The status and the text of a request that is refused."""
    where = f"{server.url}{path or f'/v1/models/{server.settings.name}:predict'}"
    try:
        with urllib.request.urlopen(where, body, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()
