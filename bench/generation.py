"""How many tokens a second does a served text model write, for 1, 4 and 16 clients at a time?

    .venv/bin/python bench/generation.py [--repeats N] [--json]

Ours: the model server, one replica, streamed completions over HTTP. The peer: the same model in a bare
program that writes one text after the other, with its keys and values kept and nothing of a server. Both
have one core to themselves, in turns; the clients have the other.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from arena import PROGRAMS, Arena, MeasurementError, arena
from question import Question, Row, Target, main, progress

from oarlock.serving.fleet import announcement
from oarlock.serving.settings import Settings

_CLIENTS = (1, 4, 16)
_TOKENS = 200  # of one text
_LEAST = 2  # texts of each client
_NAME = "gpt"
_LIMIT = 300.0  # seconds for anything here
# layers, width, heads, context
_SIZES = {"the example's": ("2", "128", "4", "64"), "a larger": ("6", "384", "6", "256")}
_TARGETS = {16: Target(5, at_least=True)}


def measure(repeats: int) -> list[Row]:
    return [row for size in _SIZES for row in _rows(size, repeats)]


def _rows(size: str, repeats: int) -> list[Row]:
    ours: dict[int, list[float]] = {clients: [] for clients in _CLIENTS}
    peer: list[float] = []
    with arena() as place, _clients_core() as server_core:
        folder = place.folder / "model"
        weights = _make(folder, _SIZES[size])
        alone = _Peer(place, folder, server_core)
        port = _serve(place, folder, server_core)
        _write(port, max(_CLIENTS))
        for turn in range(repeats):
            progress(f"texts of {size} model, turn {turn + 1} of {repeats}")
            peer.append(alone.rate())
            for clients in _CLIENTS:
                ours[clients].append(_write(port, clients))
    return [
        Row(
            f"{size} GPT ({weights / 1e6:.1f} million weights), {clients} at a time",
            "tokens/s",
            ours[clients],
            peer,
            "one at a time, no server",
            _TARGETS.get(clients),
            ratios=[mine / theirs for mine, theirs in zip(ours[clients], peer)],
        )
        for clients in _CLIENTS
    ]


@contextmanager
def _clients_core() -> Iterator[list[str]]:
    """Keep this process on one core; the value is what a command begins with to run on another."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        yield []
        return
    os.sched_setaffinity(0, usable[1:2])
    try:
        yield ["taskset", "-c", str(usable[0])]
    finally:
        os.sched_setaffinity(0, usable)


def _make(folder: Path, sizes: Sequence[str]) -> int:
    words = [sys.executable, str(PROGRAMS / "text_model.py"), "make", str(folder), *sizes]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT, check=True)
    return int(done.stdout)


class _Peer:
    def __init__(self, place: Arena, folder: Path, core: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*core, sys.executable, PROGRAMS / "text_model.py", "write", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.env,
            start_new_session=True,
        )
        place.processes.append(self._process)
        self._line()

    def rate(self) -> float:
        """Tokens per second."""
        assert self._process.stdin
        self._process.stdin.write(f"{_LEAST} {_TOKENS}\n".encode())
        self._process.stdin.flush()
        return _LEAST * _TOKENS / float(self._line())

    def _line(self) -> bytes:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise MeasurementError("the peer has ended")
        return line


def _serve(place: Arena, folder: Path, core: Sequence[str]) -> int:
    file = place.folder / "serving.json"
    settings = Settings(_NAME, str(folder), port=0, queue=_LIMIT, deadline=_LIMIT)
    file.write_text(settings.to_json())
    place.start([*core, sys.executable, "-m", "oarlock.serving", file])
    ready = announcement.path_for(file)
    place.wait(lambda: announcement.read(ready), "server that answers", _LIMIT)
    told = announcement.read(ready)
    assert told
    return int(told.url.rpartition(":")[2])


def _write(port: int, clients: int) -> float:
    """Tokens per second of so many clients, each with one text after the other."""
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        written = sum(pool.map(lambda client: _client(port, client), range(clients)))
        return written / (time.perf_counter() - began)


def _client(port: int, number: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_LIMIT)
    written = 0
    for text in range(_LEAST):
        asked = {
            "prompt": "The ",
            "max_tokens": _TOKENS,
            "seed": number * _LEAST + text,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        connection.request("POST", "/v1/completions", json.dumps(asked))
        events = connection.getresponse().read().split(b"\n\n")
        if events[-2:] != [b"data: [DONE]", b""]:
            raise MeasurementError(f"a stream ended with {events[-2:]!r}")
        written += json.loads(events[-3][len(b"data: ") :])["usage"]["completion_tokens"]
    connection.close()
    return written


QUESTION = Question("generation", "Tokens per second of a served text model", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
