"""The Open Inference Protocol as its specification writes it; `tritonclient` is in test_same_answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.http_calls import Reply, ask, get, post
from tests.support.served_models import ServedModels, calculator, classifier, echo, serving

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    with serving(ServedModels([calculator()])) as port:
        yield port


def tensor(name: str, shape: list[int], datatype: str, data: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def binary(name: str, shape: Any, datatype: str, size: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}


def send(port: int, inputs: Any, tail: bytes = b"", length: str | None = None, **more: Any) -> Reply:
    written = json.dumps({"inputs": inputs, **more}).encode()
    headers = {LENGTH: length or str(len(written))} if tail or length else {}
    return post(port, "/v2/models/m/infer", written + tail, headers)


def split(reply: Reply) -> tuple[Any, bytes]:
    length = int(reply.headers[LENGTH.lower()])
    return json.loads(reply.body[:length]), reply.body[length:]


A = tensor("a", [2, 2], "FP64", [1, 2, 3.5, 4])
B = tensor("b", [2], "INT8", [2, 4])


def test_flat_and_nested_data_give_the_same(numbers: int) -> None:
    nested = tensor("a", [2, 2], "FP64", [[1, 2], [3.5, 4]])
    for inputs in ([A, B], [B, nested]):
        assert send(numbers, inputs, id="42").data == {
            "model_name": "m",
            "model_version": "1",
            "id": "42",
            "outputs": [
                {"name": "quotient", "datatype": "FP64", "shape": [2, 2], "data": [0.5, 1.0, 0.875, 1.0]},
                {"name": "sum", "datatype": "INT64", "shape": [2], "data": [5, 11]},
            ],
        }


def test_outputs_are_chosen_by_name(numbers: int) -> None:
    found = send(numbers, [A, B], outputs=[{"name": "sum"}]).data
    assert [one["name"] for one in found["outputs"]] == ["sum"]
    assert "id" not in found
    reply = send(numbers, [A, B], outputs=[{"name": "other"}])
    assert reply.status == 400
    assert "no output 'other'; it gives 'quotient'" in reply.data["error"]


def test_tensors_travel_as_bytes_in_both_directions(numbers: int) -> None:
    a, b = np.array([[1, 2], [3.5, 4]]), np.array([2, 4], "int8")
    inputs = [binary("b", [2], "INT8", 2), binary("a", [2, 2], "FP64", 32)]
    reply = send(numbers, inputs, b.tobytes() + a.tobytes(), parameters={"binary_data_output": True})
    header, tail = split(reply)
    assert [one["parameters"]["binary_data_size"] for one in header["outputs"]] == [32, 16]
    assert np.array_equal(np.frombuffer(tail[:32]).reshape(2, 2), [[0.5, 1.0], [0.875, 1.0]])
    assert np.array_equal(np.frombuffer(tail[32:], "int64"), [5, 11])
    mixed = send(
        numbers,
        [binary("a", [2, 2], "FP64", 32), B],
        a.tobytes(),
        outputs=[{"name": "sum", "parameters": {"binary_data": True}}, {"name": "quotient"}],
    )
    header, tail = split(mixed)
    assert header["outputs"][1]["data"] == [0.5, 1.0, 0.875, 1.0]
    assert np.array_equal(np.frombuffer(tail, "int64"), [5, 11])


def test_nan_and_infinity_travel_as_bytes_only(numbers: int) -> None:
    zero = tensor("b", [2], "INT8", [0, 0])
    reply = send(numbers, [A, zero])
    assert reply.status == 400
    assert "'quotient' contains NaN or an infinity, which JSON cannot represent" in reply.data["error"]
    _, tail = split(send(numbers, [A, zero], parameters={"binary_data_output": True}))
    assert np.isinf(np.frombuffer(tail[:32])).all()
    content = b'{"inputs": [{"name": "a", "shape": [1, 2], "datatype": "FP64", "data": [NaN, 1]}]}'
    assert "not JSON" in post(numbers, "/v2/models/m/infer", content).data["error"]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (None, "inputs is null, and a list of objects"),
        ([], "'a' is missing; it takes 'a' (float64 [any, 2]), 'b' (int8 [any])"),
        ([1], "a list of objects"),
        ([A], "'b' is missing"),
        ([A, B, A], "twice"),
        ([A, {**B, "name": 5}], "the name 5"),
        ([A, {**B, "name": "c"}], "no input 'c' and the input 'b' is missing"),
        ([A, {**B, "datatype": "INT32"}], "datatype 'INT32', and the model takes INT8"),
        ([A, {**B, "shape": [3]}], "2 values in its data, and [3] as its shape"),
        ([A, {**B, "shape": [2, 1]}], "shape [2, 1], and the model takes [any]"),
        ([A, {**B, "shape": "x"}], "a list of sizes is expected"),
        ([A, {**B, "shape": [-1]}], "a list of sizes is expected"),
        ([A, {**B, "shape": [2**63]}], "a list of sizes is expected"),
        ([A, {**B, "shape": [0], "data": []}], "empty"),
        ([A, {**B, "shape": [1], "data": [1]}], "different numbers of rows"),
        ([A, {**B, "data": [1, 300]}], "300, which does not fit int8"),
        ([A, {**B, "data": [1, True]}], "true, and the model takes int8"),
        ([A, {**B, "data": "xx"}], '"xx"'),
        ([{**A, "data": [[1, 2, 3, 4]]}, B], "the shape [1, 4] in its data"),
        ([{**A, "data": [[1, 2], [3]]}, B], "ragged"),
        ([{**A, "data": [1, [2], 3, 4]}, B], "a list, and the model takes float64"),
        ([A, {"name": "b", "shape": [2], "datatype": "INT8"}], "neither data nor a binary_data_size"),
        ([A, binary("b", [2], "INT8", 2)], "binary_data_size 2; 0 bytes are left"),
        ([A, binary("b", [2], "INT8", "2")], 'binary_data_size "2"'),
        ([A, binary("b", [2], "INT8", -1)], "binary_data_size -1"),
        ([A, {**B, "parameters": 3}], "the parameters of input 'b' are 3"),
        ([A, {**B, "parameters": {"shared_memory_region": "x"}}], "no extension"),
    ],
)
def test_a_mistake_is_answered_with_what_is_wrong(numbers: int, inputs: Any, says: str) -> None:
    reply = send(numbers, inputs)
    assert reply.status == 400
    assert list(reply.data) == ["error"]
    assert says in reply.data["error"]


def test_mistakes_in_binary_bodies(numbers: int) -> None:
    both = [binary("a", [1, 2], "FP64", 16), binary("b", [1], "INT8", 1)]
    cases: Sequence[tuple[Any, bytes, str | None, str]] = [
        (both, b"x" * 18, None, "1 bytes that belong to no input"),
        (both, b"x" * 16, None, "0 bytes are left"),
        ([both[0], binary("b", [1], "INT8", 2)], b"x" * 18, None, "'b' has 2 bytes; [1] of int8 takes 1"),
        (both, b"x" * 17, "9999", "Inference-Header-Content-Length is '9999'"),
        (both, b"x" * 17, "-1", "Inference-Header-Content-Length"),
        (both, b"x" * 17, "5", "not JSON"),
    ]
    for inputs, tail, length, says in cases:
        reply = send(numbers, inputs, tail, length)
        assert reply.status == 400
        assert says in reply.data["error"]


def test_parameters_of_a_request(numbers: int) -> None:
    for parameters, says in (
        (5, "parameters of the request are 5"),
        ({"binary_data_output": 1}, "true or false is expected"),
        ({"timeout": "soon"}, "microseconds are expected"),
        ({"timeout": -1}, "microseconds are expected"),
    ):
        reply = send(numbers, [A, B], parameters=parameters)
        assert reply.status == 400
        assert says in reply.data["error"]
    assert "id is 5" in send(numbers, [A, B], id=5).data["error"]
    assert send(numbers, [A, B], parameters={"timeout": 60_000_000, "priority": 3}).status == 200


def test_text_in_json_and_as_bytes() -> None:
    with serving(ServedModels([echo("string", (None,))])) as port:
        texts = ["a", "", "é"]
        reply = send(port, [tensor("x", [3], "BYTES", texts)])
        assert reply.data["outputs"][0]["data"] == texts
        packed = b"".join(struct.pack("<I", len(one.encode())) + one.encode() for one in texts)
        inputs = [binary("x", [3], "BYTES", len(packed))]
        assert send(port, inputs, packed).data["outputs"][0]["data"] == texts
        header, tail = split(send(port, inputs, packed, parameters={"binary_data_output": True}))
        assert header["outputs"][0]["datatype"] == "BYTES"
        assert tail == packed
        raw = struct.pack("<I", 2) + b"\xff\xfe"
        reply = send(port, [binary("x", [1], "BYTES", 6)], raw)
        assert "bytes that are not text" in reply.data["error"]
        header, tail = split(
            send(port, [binary("x", [1], "BYTES", 6)], raw, parameters={"binary_data_output": True})
        )
        assert tail == raw
        for content, shape, says in (
            (raw[:5], [1], "in the middle of text 1 of 1"),
            (raw + b"z", [1], "1 bytes after its last text"),
            (struct.pack("<I", 2**32 - 1) + b"xx", [1], "in the middle of text 1 of 1"),
            (raw, [9], "too few for 9 texts"),
        ):
            reply = send(port, [binary("x", shape, "BYTES", len(content))], content)
            assert reply.status == 400
            assert says in reply.data["error"]


def test_booleans_are_one_byte() -> None:
    with serving(ServedModels([echo("bool")])) as port:
        reply = send(port, [binary("x", [1, 2], "BOOL", 2)], b"\1\0")
        assert reply.data["outputs"][0]["data"] == [True, False]
        assert "neither 0 nor 1" in send(port, [binary("x", [1, 2], "BOOL", 2)], b"\2\0").data["error"]


def test_health_and_metadata() -> None:
    models = ServedModels([classifier(3), classifier(1)])
    with serving(models) as port:
        assert get(port, "/v2").data["extensions"] == ["binary_tensor_data", "model_repository"]
        assert get(port, "/v2/models").data == {"models": ["m"]}
        about = get(port, "/v2/models/m").data
        assert about["versions"] == ["3", "1"]
        assert about["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 4, 3]}]
        assert about["parameters"]["labels"] == ["cat", "dog", "owl"]
        assert get(port, "/v2/models/m/versions/1").data["parameters"]["version"] == "1"
        assert get(port, "/v2/models/m/versions/7").status == 404
        assert (
            get(port, "/v2/models/other").data["error"]
            == "there is no model 'other' here; this server has 'm'"
        )
        for path in ("/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready", "/readyz"):
            models.is_ready = True
            assert get(port, path).status == 200
            models.is_ready = False
            assert get(port, path).status == 503
        assert get(port, "/v2/health/live").status == get(port, "/healthz").status == 200
        assert [one["state"] for one in ask(port, "POST", "/v2/repository/index", {}).data] == ["LOADING"] * 2
