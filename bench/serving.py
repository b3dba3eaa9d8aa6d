"""How many requests a second does one core serve, and how long does each wait?

    .venv/bin/python bench/serving.py [--repeats N] [--json]        BENCH_SECONDS=5

Beside FastAPI, LitServe and BentoML: a small convolutional network as a SavedModel; one 28x28 image as JSON.
The server is pinned to one core and the client (`wrk`) to another; the servers take turns. The peers are
installed into build/peers, beside this environment's packages. Then: the time from the command to the first
answer, and the memory of four replicas beside four plain processes.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from arena import BIN, PROGRAMS, Arena, MeasurementError, arena
from question import Question, Row, Target, main, progress

from oarlock.system import free_ports

SECONDS = os.environ.get("BENCH_SECONDS", "5")
SERVERS = PROGRAMS / "servers"
PEERS = Path(__file__).parents[1] / "build" / "peers"
PATH = "/v1/models/digits:predict"
CLIENTS = (1, 64)
_PACKAGES = ("fastapi", "litserve", "bentoml")
_REPLICAS = 4
Words = Callable[[Path, int, Path], list[str | Path]]  # to start a server: the peers' Python, port, model


class Load(NamedTuple):
    """What `wrk` has measured."""

    rate: float  # requests a second
    p99: float  # milliseconds


def measure(repeats: int) -> list[Row]:
    _require_wrk()
    python = _peers()
    with arena() as place:
        model = place.folder / "digits"
        progress("exporting")
        subprocess.run([sys.executable, SERVERS / "export_digits.py", model], check=True, capture_output=True)
        script = _script(place)
        kinds = {"oarlock": _ours, "FastAPI": _fastapi, "LitServe": _litserve, "BentoML": _bento}
        found: dict[str, dict[int, list[Load]]] = {name: {n: [] for n in CLIENTS} for name in kinds}
        for turn in range(repeats):
            for name, words in kinds.items():
                progress(f"{name}, {turn + 1} of {repeats}")
                with _server(words, python, model) as port:
                    for clients in CLIENTS:
                        found[name][clients].append(_load(port, clients, script))
        return [*_speed(found), *_start_and_memory(repeats, python, model)]


def _speed(found: dict[str, dict[int, list[Load]]]) -> Iterator[Row]:
    # At one client, the model's own time counts: a faster form of the model is used here.
    targets = {("FastAPI", 64): 6.0, ("LitServe", 64): 10.0, ("FastAPI", 1): 3.0}
    for clients in CLIENTS:
        ours = found["oarlock"][clients]
        for name in ("FastAPI", "LitServe", "BentoML"):
            peer = found[name][clients]
            what, limit = f"{clients} client{'s' * (clients > 1)}", targets.get((name, clients))
            yield Row(
                f"{what}: requests",
                "/s",
                [one.rate for one in ours],
                [one.rate for one in peer],
                name,
                Target(limit, at_least=True) if limit else None,
            )
            yield Row(
                f"{what}: p99",
                "ms",
                [one.p99 for one in ours],
                [one.p99 for one in peer],
                name,
                Target(0.2) if clients == 64 else None,
            )


def _start_and_memory(repeats: int, python: Path, model: Path) -> Iterator[Row]:
    starts: dict[str, list[float]] = {"ours": [], "peer": []}
    memory: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(repeats):
        progress(f"start and memory, {turn + 1} of {repeats}")
        for side, words, count in (("ours", _ours, 1), ("peer", _fastapi, _REPLICAS)):
            began = monotonic()
            with _server(words, python, model, pinned=False) as _:
                starts[side].append(monotonic() - began)
            with arena() as place:
                options = ["--replicas", str(_REPLICAS)] if side == "ours" else []
                for _ in range(count):
                    port = free_ports.free_ports(1)[0]
                    place.start([*words(python, port, model), *options], _env(model))
                    _await(place, port)
                memory[side].append(_memory(place))
    yield Row("from the command to the first answer", "s", starts["ours"], starts["peer"], "FastAPI")
    yield Row(
        f"memory of {_REPLICAS} replicas", "MB", memory["ours"], memory["peer"], f"{_REPLICAS} of FastAPI"
    )


def _ours(python: Path, port: int, model: Path) -> list[str | Path]:
    return [BIN / "oarlock", "serve", model, "--port", str(port), "--name", f"digits-{port}"]


def _fastapi(python: Path, port: int, model: Path) -> list[str | Path]:
    return [python, SERVERS / "fastapi_server.py", str(port)]


def _litserve(python: Path, port: int, model: Path) -> list[str | Path]:
    return [python, SERVERS / "litserve_server.py", str(port)]


def _bento(python: Path, port: int, model: Path) -> list[str | Path]:
    where = ["--port", str(port), "--working-dir", str(SERVERS)]
    return [python.with_name("bentoml"), "serve", "bento_server:Digits", *where]


@contextmanager
def _server(words: Words, python: Path, model: Path, pinned: bool = True) -> Iterator[int]:
    with arena() as place:
        port = free_ports.free_ports(1)[0]
        pin: list[str | Path] = ["taskset", "-c", "0"] if pinned else []
        place.start([*pin, *words(python, port, model)], _env(model))
        _await(place, port)
        yield port


def _env(model: Path) -> dict[str, str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "BENTOML_DO_NOT_TRACK": "True"}
    return {"BENCH_MODEL": str(model), "OMP_NUM_THREADS": "1", **quiet}


def _await(place: Arena, port: int) -> None:
    """Until the model has answered once."""

    def answers() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", PATH, _body(), {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        return False

    place.wait(answers, "answer")


def _body() -> str:
    dice = random.Random(1)
    image = [[round(dice.random(), 3) for _ in range(28)] for _ in range(28)]
    return json.dumps({"instances": [image]})


def _script(place: Arena) -> Path:
    script = place.folder / "post.lua"
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = [==[{_body()}]==]\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
    )
    return script


def _load(port: int, clients: int, script: Path) -> Load:
    words = ["taskset", "-c", "1", "wrk", "-t", "1", "-c", str(clients), "--latency"]
    words += ["--timeout", "30s", "-s", str(script)]
    url = f"http://127.0.0.1:{port}{PATH}"
    subprocess.run([*words, "-d", "1", url], check=True, capture_output=True)  # warm
    said = subprocess.run([*words, "-d", SECONDS, url], check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise MeasurementError(f"some requests failed:\n{said}")
    rate, p99 = re.search(r"Requests/sec:\s+([\d.]+)", said), re.search(r"99%\s+([\d.]+)(us|ms|s)\b", said)
    if rate is None or p99 is None:
        raise MeasurementError(f"wrk says:\n{said}")
    return Load(float(rate[1]), float(p99[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[p99[2]])


def _memory(place: Arena) -> float:
    """Megabytes of all processes that the arena started: shared pages are counted in parts (PSS)."""
    total = 0
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if f"TMPDIR={place.folder}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                text = (folder / "smaps_rollup").read_text()
                total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return total / 1024


def _peers() -> Path:
    """An environment with the peers and, behind them, the packages of this one."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        progress("installing the peers")
        venv.create(PEERS, with_pip=True)
        folder = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        Path(folder.strip(), "ours.pth").write_text(sysconfig.get_path("purelib"))
        try:
            subprocess.run([python, "-m", "pip", "install", "-q", *_PACKAGES], check=True)
        except BaseException:
            shutil.rmtree(PEERS)
            raise
    return python


def _require_wrk() -> None:
    if shutil.which("wrk") is None:
        raise MeasurementError("this needs `wrk`: apt-get install wrk")


QUESTION = Question("serving", "Serving a small model from one core", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
