"""Requests bent in every way: each gets an answer or a sentence, none gets 500, and the server lives.

The seed is printed; OARLOCK_FUZZ_SEED sets another one. `make soak` sends fifty times as many.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.models import model_manifest
from oarlock.models.model_manifest import Manifest
from oarlock.serving.settings import Settings
from tests.support import odd
from tests.support.http_calls import get, post
from tests.support.model_servers import MANIFEST, model_server, publish
from tests.support.served_models import Computed, ServedModels, calculator, classifier, echo, serving
from tests.support.waiting import eventually

SEED = int(os.environ.get("OARLOCK_FUZZ_SEED", "16"))
COUNT = 2000 * odd.ROUNDS  # for each of five models
TORN = 300 * odd.ROUNDS
HEADERS = [
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/octet-stream"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "\x7f"),
    ("Inference-Header-Content-Length", "0"),
    ("Inference-Header-Content-Length", "17"),
    ("Inference-Header-Content-Length", "\u00b2"),
    ("Inference-Header-Content-Length", "1e3"),
    ("Authorization", "Bearer x"),
    ("Accept-Encoding", "gzip"),
    ("X-Request-Id", "a" * 5000),
]
PATHS = [
    "/v1/models/m",
    "/v2/models/m",
    "/v2",
    "/v1/models",
    "/healthz",
    "/metrics",
    "/",
    "/openapi.json",
    "//",
]
SUFFIXES = [
    *("", ":predict", ":classify", ":regress", "/infer", "/metadata", "/ready", "/versions/1", "/versions/9"),
    *(
        "/versions/1:predict",
        "/versions/99999999999999999999/infer",
        "/versions/%00",
        "/%2e%2e",
        "%ff",
        "?a=b",
    ),
    *("/versions/\u0661:predict".encode().hex(), ":", "#", "/../..", "/versions//infer"),
]
DEADLINE = re.compile(rb'"timeout": [0-9.]*[1-9]')  # in microseconds
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"]


def models() -> dict[str, Computed]:
    return {"image": classifier(), "two": calculator(), "text": echo("string"), "uint8": echo("uint8")}


class Bodies:
    """Good requests to a model, and bent ones."""

    def __init__(self, manifest: Manifest, source: random.Random) -> None:
        self._source = source
        self._arrays = {}
        for one in manifest.inputs:
            shape = [2 if size is None else size for size in one.shape]
            numbers = np.arange(np.prod(shape)).reshape(shape) % 100
            self._arrays[one.name] = numbers.astype(str if one.dtype == "string" else one.dtype).tolist()
        rows = [{name: value[row] for name, value in self._arrays.items()} for row in range(2)]
        tensors: list[dict[str, Any]] = [
            {
                "name": one.name,
                "datatype": _datatype(one.dtype),
                "shape": list(np.shape(self._arrays[one.name])),
            }
            for one in manifest.inputs
        ]
        self._good: list[tuple[str, Any]] = [
            ("/v1/models/m:predict", {"instances": rows}),
            ("/v1/models/m:predict", {"inputs": self._arrays}),
            ("/v1/models/m:classify", {"examples": rows, "context": {}}),
            (
                "/v2/models/m/infer",
                {"id": "1", "inputs": [{**one, "data": self._arrays[one["name"]]} for one in tensors]},
            ),
            (
                "/v2/models/m/infer",
                {
                    "inputs": [{**one, "parameters": {"binary_data_size": 16}} for one in tensors],
                    "parameters": {"binary_data_output": True, "timeout": 0},
                    "outputs": [{"name": manifest.outputs[0].name, "parameters": {"binary_data": True}}],
                },
            ),
        ]

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        source = self._source
        path, good = source.choice(self._good)
        text = json.dumps(good)
        body = text.encode() if source.random() < 0.1 else odd.mutated(source, text)
        headers = {}
        if "binary_data_size" in text and source.random() < 0.9:
            headers["Inference-Header-Content-Length"] = str(len(body))
            body += source.randbytes(source.choice([0, 16, 32, source.randrange(64)]))
        if source.random() < 0.1:
            name, value = source.choice(HEADERS)
            headers[name] = value
        if source.random() < 0.1:
            path = source.choice(PATHS) + source.choice(SUFFIXES)
        method = "POST" if source.random() < 0.9 else source.choice(METHODS)
        return method, path, body, headers


@pytest.fixture(params=["image", "two", "text", "uint8"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[int, Computed]]:
    model = models()[request.param]
    settings = Settings("m", "models", body_limit=150_000)
    with serving(ServedModels([model], settings=settings)) as port:
        yield port, model


def test_an_odd_request_gets_an_answer_or_a_sentence(served: tuple[int, Computed]) -> None:
    port, model = served
    bend(port, model.manifest, COUNT)
    assert get(port, "/healthz").status == 200


def test_the_whole_server_survives_odd_requests(tmp_path: Path) -> None:
    """No replica dies of them, and its model answers as before."""
    publish(tmp_path / "models", factor=3)
    with model_server(tmp_path / "models", tmp_path, name="m", replicas=2, body_limit=150_000) as server:
        port = server.port
        eventually(lambda: len(server.replicas) == 2, "two replicas")
        before = {one.pid for one in server.replicas}
        bend(port, model_manifest.read(json.dumps(MANIFEST).encode()), COUNT)
        assert {one.pid for one in server.replicas} == before
        assert server.ask(1, 2)[0] == 9
        assert "Traceback" not in server.said


def bend(port: int, manifest: Manifest, count: int) -> None:
    """Send bent requests over one connection."""
    print("seed", SEED)
    source = random.Random(f"{SEED} {manifest.inputs[0].name} {manifest.inputs[0].dtype}")
    bodies = Bodies(manifest, source)
    answers = 0
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        for number in range(count):
            method, path, body, headers = bodies.request()
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            content = reply.read()
            where = f"request {number}: {method} {path} {headers} {body[:200]!r}"
            where += f": {reply.status} {content[:200]!r}"
            is_late = reply.status == 504 and DEADLINE.search(body)  # as the request asked for
            assert reply.status == 200 or 400 <= reply.status < 500 or is_late, where
            assert b"Traceback" not in content, where
            if reply.status >= 400 and method != "HEAD":
                sentence = json.loads(content)["error"]
                assert isinstance(sentence, str), where
                assert 5 < len(sentence) < 1000, where
            answers += reply.status == 200
    assert answers > count / 50, "hardly any request was good: the others may all fail for one reason"


def test_torn_http_harms_nobody(served: tuple[int, Computed]) -> None:
    port, model = served
    print("seed", SEED)
    source = random.Random(SEED)
    bodies = Bodies(model.manifest, source)
    for number in range(TORN):
        method, path, body, headers = bodies.request()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        content = odd.tear(source, head.encode() + b"\r\n" + body)
        answer = b""
        connection = socket.create_connection(("127.0.0.1", port), timeout=120)
        with connection as client, contextlib.suppress(OSError):  # the server may be faster
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
            while more := client.recv(65536):
                answer += more
        status = answer[9:12]
        assert not status.startswith(b"5"), f"request {number}: {content[:300]!r}: {answer[:300]!r}"
        assert b"Traceback" not in answer
    assert get(port, "/healthz").status == 200
    assert post(port, "/v1/models/m:predict", {}).status == 400


def _datatype(dtype: str) -> str:
    return {"float32": "FP32", "float64": "FP64", "string": "BYTES"}.get(dtype, dtype.upper())
