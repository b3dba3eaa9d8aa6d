"""What any request meets: unknown addresses, methods, limits, tokens, deadlines, metrics and the log."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oarlock.serving.served import Overloaded
from oarlock.serving.settings import Settings
from tests.support.http_calls import ask, get, post
from tests.support.served_models import Array, Computed, ServedModels, echo, serving
from tests.support.waiting import eventually

PREDICT = "/v1/models/m:predict"
INFER = "/v2/models/m/infer"
GOOD = {"instances": [[1, 2]]}
SETTINGS = Settings("m", "models")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(ServedModels([echo("float32")])) as port:
        yield port


class Full(Computed):
    """A model for which too many requests wait."""

    async def predict(self, inputs: Mapping[str, Array], deadline: float | None) -> dict[str, Array]:
        raise Overloaded(2.3)


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/models/m:other", "/v2/models/m/x", "/v1/models/m/"])
def test_an_unknown_address_is_404(port: int, path: str) -> None:
    reply = get(port, path)
    assert reply.status == 404
    assert "/openapi.json" in reply.data["error"]


def test_a_wrong_method_is_405_and_names_the_right_one(port: int) -> None:
    reply = get(port, PREDICT)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert ask(port, "DELETE", "/v1/models/m").headers["allow"] == "GET"
    assert ask(port, "OPTIONS", INFER).status == 405


def test_head_is_get_without_a_body(port: int) -> None:
    reply = ask(port, "HEAD", "/healthz")
    assert (reply.status, reply.body) == (200, b"")


def test_a_body_over_the_limit_is_413(port: int) -> None:
    with serving(ServedModels([echo("float32")], settings=replace(SETTINGS, body_limit=200_000))) as small:
        for path in (PREDICT, INFER):
            reply = post(small, path, b" " * 200_001)
            assert reply.status == 413
            assert "200000 bytes" in reply.data["error"]
        packed = gzip.compress(b" " * 10_000_000)
        assert post(small, PREDICT, packed, {"content-encoding": "gzip"}).status == 413
        assert post(small, PREDICT, b" " * 150_000 + json.dumps(GOOD).encode()).status == 200


def test_bodies_may_be_compressed(port: int) -> None:
    body = json.dumps(GOOD).encode()
    for encoding, content in (
        ("gzip", gzip.compress(body)),
        ("deflate", zlib.compress(body)),
        ("identity", body),
    ):
        assert post(port, PREDICT, content, {"content-encoding": encoding}).status == 200
    assert post(port, PREDICT, body, {"content-encoding": "gzip"}).status == 400
    assert post(port, PREDICT, gzip.compress(body)[:-5], {"content-encoding": "gzip"}).status == 400
    assert post(port, PREDICT, body, {"content-encoding": "br"}).status == 415


def test_too_much_waiting_work_is_429_with_a_time() -> None:
    plain = echo("float32")
    with serving(ServedModels([Full(plain.manifest, plain.compute)])) as port:
        reply = post(port, PREDICT, GOOD)
        assert (reply.status, reply.headers["retry-after"]) == (429, "3")
        assert "try again in 2.3 s" in reply.data["error"]


def test_a_late_model_is_504() -> None:
    answer = threading.Event()
    model = echo("float32")
    model.compute = lambda inputs: {"y": inputs["x"]} if answer.wait(120) else {}
    with serving(ServedModels([model])) as port:
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
        reply = post(port, INFER, {**body, "parameters": {"timeout": 1}})
        assert reply.status == 504
        assert "deadline" in reply.data["error"]
        answer.set()
        assert post(port, INFER, body).status == 200


def test_a_broken_model_is_500_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    model = echo("float32")
    model.compute = lambda inputs: {"y": inputs["nothing"]}
    with serving(ServedModels([model])) as port:
        reply = post(port, PREDICT, GOOD)
        assert reply.status == 500
        assert "log" in reply.data["error"]
        assert b"Traceback" not in reply.body
        assert get(port, "/healthz").status == 200


def test_a_token_is_asked_for_and_may_change(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    models = ServedModels([echo("float32")], settings=replace(SETTINGS, token_file=str(file)))
    with serving(models) as port:

        def status(header: str | None) -> int:
            return post(port, PREDICT, GOOD, {"authorization": header} if header else {}).status

        assert status("Bearer first") == status("bearer first") == 200
        for wrong in (None, "Bearer second", "first", "Basic first", "Bearer", "Bearer first2", "Bearer é"):
            assert status(wrong) == 401
        reply = post(port, PREDICT, GOOD)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer" in reply.data["error"]
        for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"):
            assert get(port, path).status == 200
        for path in ("/metrics", "/v2/models/m", "/v1/models/m"):
            assert get(port, path).status == 401
        file.write_text("second")
        eventually(lambda: status("Bearer second") == 200, "new token")
        assert status("Bearer first") == 401
        file.unlink()
        assert status("Bearer second") == 200


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch()
    models = ServedModels([echo("float32")], settings=replace(SETTINGS, token_file=str(file)))
    with pytest.raises(ValueError, match="is empty"), serving(models):
        pass


def test_metrics_count_requests_by_dialect_and_code() -> None:
    with serving(ServedModels([echo("float32")])) as port:
        post(port, PREDICT, GOOD)
        post(port, PREDICT, {})
        post(port, INFER, {})
        reply = get(port, "/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = reply.body.decode()
        for dialect, code in (("tensorflow", 200), ("tensorflow", 400), ("open_inference", 400)):
            assert f'oarlock_requests_total{{dialect="{dialect}",code="{code}"}} 1' in text
        assert "oarlock_request_seconds_count 3" in text


def test_the_access_log_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    models = ServedModels([echo("float32")], settings=replace(SETTINGS, access_log=True))
    said = ""

    def lines() -> list[Any]:
        nonlocal said
        said += capfd.readouterr().out
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    with serving(models) as port:
        post(port, PREDICT, GOOD, {"x-request-id": "r1", "authorization": "Bearer secret"})
        get(port, "/nothing")
        eventually(lambda: len(lines()) == 2, "two lines")
    first, second = lines()
    assert first.pop("time") > 0
    assert first.pop("ms") > 0
    assert first == {
        "client": "127.0.0.1",
        "method": "POST",
        "path": PREDICT,
        "dialect": "tensorflow",
        "status": 200,
        "bytes_in": len(json.dumps(GOOD)),
        "bytes_out": len('{"predictions": [[1.0,2.0]]}'),
        "version": 1,
        "request": "r1",
    }
    assert (second["path"], second["status"]) == ("/nothing", 404)
    assert "secret" not in said
