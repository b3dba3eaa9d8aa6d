"""A real S3 server for one test, on a free port and over a folder of its own; and ways to make it worse.

It can be killed and started again on the same data. `Narrow` is a way to it that lets few bytes through.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.waiting import eventually

_PACKED = Path(__file__).parents[3] / "shared" / "store" / "bin" / "versitygw.xz"
needs_store = pytest.mark.skipif(not _PACKED.is_file(), reason="the S3 server of ../shared/store is not here")
BUCKET = "runs"
# Its state after a step depends on all steps before. It saves after each, and goes on from the newest.
SAVES = """
import hashlib, json, os, pathlib, sys, time, oarlock
from oarlock.checkpoints.store import Store, checksum
steps, size, pause, keep = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), 3
me = oarlock.current()
store = Store(os.environ["CHECKPOINT_DIR"])
newest, _ = store.newest()
state = (newest.path / "state.bin").read_bytes()[:32] if newest else b"begin"
first = newest.step if newest else 0
print("starting after step", first, flush=True)
for step in range(first + 1, steps + 1):
    state = hashlib.sha256(state).digest()
    draft = store.draft(step, me.generation)
    draft.mkdir(parents=True)
    (draft / "state.bin").write_bytes(state + os.urandom(size))
    told = dict(zip(("size", "crc32"), checksum(draft / "state.bin")))
    store.commit(draft, {"format": 1, "run": me.run, "generation": me.generation, "step": step,
                         "saved": time.time(), "files": {"state.bin": told}})
    for old in store.checkpoints()[:-keep]:
        store.delete(old)
    me.report(step, total=steps)
    time.sleep(pause)
model = pathlib.Path(os.environ["MODEL_DIR"])
(model / "weights").mkdir(exist_ok=True)
(model / "weights" / "state").write_bytes(state)
(model / "about.txt").write_text("a model")
"""
# After k steps its weight is k. As a model, it multiplies by its weight. "until moved": it trains until
# another generation takes over.
EXPORTS = """
import json, pathlib, sys, time
import oarlock
steps, every, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
state = oarlock.State(weight=0)
if sys.argv[4:] == ["until moved"]:
    steps = 10**6 if oarlock.current().generation == 1 else state.step + 15
pathlib.Path("predict.py").write_text('''
import json
def load(folder):
    return Model(json.loads((folder / "weight.json").read_text()))
class Model:
    def __init__(self, weight):
        self.weight = weight
    def predict(self, inputs):
        return {"y": inputs["x"] * self.weight}
''')
def publish():
    if sys.argv[4:] == ["fail"] or sys.argv[4:] == ["fail early"] and state.step < steps:
        raise ValueError("the disk of models is full")
    pathlib.Path("weight.json").write_text(json.dumps(state.weight))
    oarlock.export("predict.py", example={"x": [1.0]}, files=["weight.json"], keep=2)
for step in state.steps(steps, save=5, export=publish, export_every=every):
    state.weight += 1
    state.report(loss=1 / (1 + step))
    time.sleep(pause)
"""


class Store:
    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        self.port = free_ports(1, host)[0]
        self.key = f"KEY{secrets.token_hex(10)}"
        self.secret = secrets.token_hex(20)
        self._process: subprocess.Popen[bytes] | None = None
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)

    def env(self, port: int | None = None) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.host}:{port or self.port}",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        words = [str(_server()), "--port", f"{self.host}:{self.port}", "--quiet", "posix", str(self.folder)]
        env = {**os.environ, "ROOT_ACCESS_KEY_ID": self.key, "ROOT_SECRET_ACCESS_KEY": self.secret}
        self._process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: _listens(self.host, self.port), f"S3 server on port {self.port}", every=0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def settle(self) -> None:
        """Have what is there be all there will be: a request that was complete when its client died may be
        carried out later."""
        self.kill()
        self.start()

    def objects(self) -> dict[str, Path]:
        """What it holds, as its folder shows it; what is still being put together apart."""
        root = self.folder / BUCKET
        found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        return {name: path for name, path in found.items() if not name.startswith(".sgwtmp")}


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """One that runs, and what is needed to reach it in the environment."""
    store = Store(folder)
    store.start()
    for name, value in store.env().items():
        monkeypatch.setenv(name, value)
    yield store
    store.kill()


def state_after(steps: int) -> bytes:
    state = b"begin"
    for _ in range(steps):
        state = hashlib.sha256(state).digest()
    return state


def complete(store: Store, run: str = "moved") -> list[str]:
    """Names of the run's complete snapshots."""
    found = [name.split("/") for name in store.objects() if name.endswith("/manifest.json")]
    return sorted("/".join(parts[2:-1]) for parts in found if parts[1] == run)


def newest(names: list[str]) -> int:
    """The step of the newest one among them."""
    return max((int(name.split("-")[1]) for name in names if name.startswith("step-")), default=0)


class Narrow:
    """A TCP proxy to a port, through which only so many bytes a second pass in each direction; none while it
    is not `open`."""

    def __init__(self, port: int, rate: float) -> None:
        self.target = port
        self.rate = rate
        self.passed = 0
        self.open = threading.Event()
        self.open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        try:
            with near, socket.create_connection(("127.0.0.1", self.target)) as far:
                while True:
                    readable, _, _ = select.select([near, far], [], [], 60)
                    self.open.wait()
                    for source in readable:
                        data = source.recv(16384)
                        if not data:
                            return
                        (far if source is near else near).sendall(data)
                        self.passed += len(data)
                        time.sleep(len(data) / self.rate)
        except OSError:
            return


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _server() -> Path:
    """Unpacked once on this machine, whoever tests first."""
    folder = Path(tempfile.gettempdir()) / f"oarlock-s3-server-{_PACKED.stat().st_size}"
    folder.mkdir(exist_ok=True)
    target = folder / "versitygw"
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            draft = folder / "part"
            with lzma.open(_PACKED) as source, draft.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            draft.chmod(0o755)
            draft.rename(target)
    return target
