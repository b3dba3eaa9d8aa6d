"""One table of cases, asked in each dialect by the clients that people use: the answers are the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support.http_calls import post
from tests.support.served_models import Array, Computed, ServedModels, calculator, classifier, echo, serving

Ask = Callable[[int, Computed, Mapping[str, Array]], dict[str, Array]]


class Refusal(Exception):
    """The status and the sentence."""


def rows(port: int, model: Computed, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """TensorFlow Serving, `instances`."""
    count = len(next(iter(inputs.values())))
    instances: list[Any] = [{name: plain(one[row]) for name, one in inputs.items()} for row in range(count)]
    if list(inputs) == [one.name for one in model.manifest.inputs] and len(inputs) == 1:
        instances = [next(iter(one.values())) for one in instances]
    found = tensorflow(port, {"instances": instances})["predictions"]
    outputs = [one.name for one in model.manifest.outputs]
    columns = (
        {name: [row[name] for row in found] for name in outputs} if len(outputs) > 1 else {outputs[0]: found}
    )
    return typed(model, columns)


def columns(port: int, model: Computed, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """TensorFlow Serving, `inputs`."""
    found = tensorflow(port, {"inputs": {name: plain(one) for name, one in inputs.items()}})["outputs"]
    outputs = [one.name for one in model.manifest.outputs]
    return typed(model, found if len(outputs) > 1 else {outputs[0]: found})


def triton_json(port: int, model: Computed, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """tritonclient, all in JSON."""
    return with_triton(port, model, inputs, is_binary=False)


def triton_binary(port: int, model: Computed, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """tritonclient as it is: binary tensors."""
    return with_triton(port, model, inputs, is_binary=True)


DIALECTS: list[Ask] = [rows, columns, triton_json, triton_binary]


def numbers(dtype: str, *values: Any) -> tuple[Computed, dict[str, Array]]:
    return echo(dtype), {"x": np.array(values, "O" if dtype == "string" else dtype).reshape(-1, 2)}


def image(count: int) -> tuple[Computed, dict[str, Array]]:
    return classifier(), {"image": np.random.default_rng(count).random((count, 4, 3), "float32")}


CASES: dict[str, tuple[Computed, dict[str, Array]]] = {
    "one image": image(1),
    "many images": image(300),
    "two inputs": (calculator(), {"a": np.array([[1.5, 2], [3, -4]]), "b": np.array([2, 100], "int8")}),
    "bool": numbers("bool", True, False, False, True),
    "int8": numbers("int8", -128, 127),
    "int16": numbers("int16", -(2**15), 2**15 - 1),
    "int32": numbers("int32", -(2**31), 2**31 - 1),
    "int64": numbers("int64", -(2**63), 2**63 - 1),
    "uint8": numbers("uint8", 0, 255),
    "uint16": numbers("uint16", 0, 2**16 - 1),
    "uint32": numbers("uint32", 0, 2**32 - 1),
    "uint64": numbers("uint64", 0, 2**64 - 1),
    "float16": numbers("float16", 0.1, -65504),
    "float32": numbers("float32", 0.1, 3.4e38, 1e-45, -0.0),
    "float64": numbers("float64", 0.1, 1.7e308, 5e-324, -1 / 3),
    "text": numbers("string", "plain", "", 'ünïcödé \n\t"quoted" \x01', "日本語 🚣"),
}
REFUSALS: dict[str, tuple[Computed, dict[str, Array], str]] = {
    "shape": (
        classifier(),
        {"image": np.zeros((1, 4, 4), "float32")},
        "[1, 4, 4], and the model takes [any, 4, 3]",
    ),
    "dimensions": (
        classifier(),
        {"image": np.zeros((4, 3), "float32")},
        "the model takes|dimensions are expected",
    ),
    "name": (classifier(), {"picture": np.zeros((1, 4, 3), "float32")}, "'image'|and the model takes"),
    "model": (calculator(), {"a": np.zeros((1, 2)), "b": np.array([-1], "int8")}, "b is negative"),
}


@pytest.fixture(scope="module")
def ports() -> Iterator[Callable[[Computed], int]]:
    """A server for each model, started when it is needed."""
    with ExitStack() as stack:
        known: dict[int, int] = {}

        def port_of(model: Computed) -> int:
            if id(model) not in known:
                known[id(model)] = stack.enter_context(serving(ServedModels([model])))
            return known[id(model)]

        yield port_of


@pytest.mark.parametrize("ask", DIALECTS, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_models(ports: Callable[[Computed], int], ask: Ask, name: str) -> None:
    if ask is triton_json and name == "float16":
        pytest.skip("tritonclient sends FP16 as bytes only")
    model, inputs = CASES[name]
    expected = model.compute(inputs)
    found = ask(ports(model), model, inputs)
    assert found.keys() == expected.keys()
    for output, array in expected.items():
        assert found[output].dtype == array.dtype
        assert np.array_equal(found[output], array), output


@pytest.mark.parametrize("ask", DIALECTS, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("name", REFUSALS)
def test_a_mistake_is_400_in_every_dialect(ports: Callable[[Computed], int], ask: Ask, name: str) -> None:
    model, inputs, says = REFUSALS[name]
    with pytest.raises(Refusal) as refusal:
        ask(ports(model), model, inputs)
    status, sentence = refusal.value.args
    assert status == 400
    assert any(one in sentence for one in says.split("|")), sentence


def test_tritonclient_asks_for_health_and_metadata(ports: Callable[[Computed], int]) -> None:
    model, _ = CASES["one image"]
    client = triton.InferenceServerClient(f"127.0.0.1:{ports(model)}")
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("m")
        assert client.is_model_ready("m", "1")
        assert not client.is_model_ready("m", "2")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["name"] == "oarlock"
        assert client.get_model_metadata("m")["inputs"][0]["name"] == "image"
        assert client.get_model_repository_index()[0] == {
            "name": "m",
            "version": "1",
            "state": "READY",
            "reason": "",
        }
        tensor = triton.InferInput("image", [1, 4, 3], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 4, 3), "float32"))
        packed = client.infer("m", [tensor], request_compression_algorithm="gzip", request_id="7")
        assert packed.get_response()["id"] == "7"
        chosen = client.infer(
            "m", [tensor], model_version="1", outputs=[triton.InferRequestedOutput("scores")]
        )
        assert np.array_equal(chosen.as_numpy("scores"), packed.as_numpy("scores"))
    finally:
        client.close()


def tensorflow(port: int, body: Any) -> Any:
    reply = post(port, "/v1/models/m:predict", body)
    if reply.status != 200:
        raise Refusal(reply.status, reply.data["error"])
    return reply.data


def with_triton(
    port: int, model: Computed, inputs: Mapping[str, Array], *, is_binary: bool
) -> dict[str, Array]:
    client = triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=120, connection_timeout=120)
    try:
        tensors = [_tensor(name, one, is_binary=is_binary) for name, one in inputs.items()]
        outputs = [
            triton.InferRequestedOutput(one.name, binary_data=is_binary) for one in model.manifest.outputs
        ]
        answer = client.infer("m", tensors, outputs=outputs)
        found = {one.name: answer.as_numpy(one.name) for one in model.manifest.outputs}
        return {name: _decoded(one) for name, one in found.items()}
    except InferenceServerException as problem:
        raise Refusal(int(problem.status()), problem.message()) from None
    finally:
        client.close()


def _tensor(name: str, array: Array, *, is_binary: bool) -> Any:
    datatype = triton_name(array)
    tensor = triton.InferInput(name, list(array.shape), datatype)
    if datatype == "BYTES":
        array = np.array([one.encode() for one in array.ravel()], "O").reshape(array.shape)
    tensor.set_data_from_numpy(array, binary_data=is_binary)
    return tensor


def triton_name(array: Array) -> str:
    return str(np_to_triton_dtype(array.dtype))


def _decoded(array: Array) -> Array:
    if array.dtype.kind != "O":
        return array
    texts = [one.decode() if isinstance(one, bytes) else one for one in array.ravel()]
    decoded: Array = np.array(texts, "O").reshape(array.shape)
    return decoded


def plain(array: Any) -> Any:
    return np.asarray(array).tolist()


def typed(model: Computed, found: Mapping[str, Any]) -> dict[str, Array]:
    types = {one.name: one.dtype for one in model.manifest.outputs}
    return {
        name: np.array(one, "O" if types[name] == "string" else types[name]) for name, one in found.items()
    }
