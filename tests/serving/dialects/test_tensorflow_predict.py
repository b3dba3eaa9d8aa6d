"""TensorFlow Serving's REST, as its documentation writes requests and answers."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest, Tensor
from tests.support.http_calls import get, post
from tests.support.served_models import Computed, ServedModels, calculator, classifier, echo, serving

IMAGE = [[0.1, 0.2, 0.3], [1, 2, 3], [0, 0, 0], [-1.5, 1e-3, 2e2]]


@pytest.fixture(scope="module")
def images() -> Iterator[int]:
    with serving(ServedModels([classifier(2), classifier(1)])) as port:
        yield port


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    with serving(ServedModels([calculator()])) as port:
        yield port


def predict(port: int, body: Any) -> Any:
    reply = post(port, "/v1/models/m:predict", body)
    assert reply.status == 200, reply.body
    return reply.data


def refused(port: int, body: Any) -> str:
    reply = post(port, "/v1/models/m:predict", body)
    assert reply.status == 400, reply.body
    assert list(reply.data) == ["error"]
    said: str = reply.data["error"]
    return said


def expected(number: int, count: int = 2) -> Any:
    """For as many images as were asked for: one is rounded in another way than two, by some processors."""
    return classifier(number).compute({"image": np.array([IMAGE] * count, "float32")})["scores"]


def test_rows_and_columns_give_the_answers_of_the_model(images: int) -> None:
    for body, key in (
        ({"instances": [IMAGE, IMAGE]}, "predictions"),
        ({"instances": [{"image": IMAGE}, {"image": IMAGE}]}, "predictions"),
        ({"inputs": [IMAGE, IMAGE]}, "outputs"),
        ({"inputs": {"image": [IMAGE, IMAGE]}, "signature_name": "serving_default"}, "outputs"),
    ):
        found = np.array(predict(images, body)[key], "float32")
        assert np.array_equal(found, expected(2))


def test_a_path_names_a_version(images: int) -> None:
    reply = post(images, "/v1/models/m/versions/1:predict", {"instances": [IMAGE, IMAGE]})
    assert np.array_equal(np.array(reply.data["predictions"], "float32"), expected(1))
    assert post(images, "/v1/models/m/versions/9:predict", {"instances": [IMAGE]}).status == 404
    assert "loaded" in post(images, "/v1/models/m/versions/9:predict", {"instances": [IMAGE]}).data["error"]
    assert post(images, "/v1/models/m/versions/x:predict", {"instances": [IMAGE]}).status == 404


def test_several_inputs_and_outputs(numbers: int) -> None:
    rows = [{"a": [1, 2], "b": 2}, {"a": [3.5, 4], "b": 4}]
    assert predict(numbers, {"instances": rows}) == {
        "predictions": [{"quotient": [0.5, 1.0], "sum": 5}, {"quotient": [0.875, 1.0], "sum": 11}]
    }
    columns = {"a": [[1, 2], [3.5, 4]], "b": [2, 4]}
    assert predict(numbers, {"inputs": columns}) == {
        "outputs": {"quotient": [[0.5, 1.0], [0.875, 1.0]], "sum": [5, 11]}
    }


def test_nan_and_infinity_are_numbers_in_both_directions(numbers: int) -> None:
    body = b'{"instances": [{"a": [NaN, -Infinity], "b": 1}, {"a": [0.2, 1], "b": 0}]}'
    # Two outputs, the second of which cannot hold them: columns of floats alone tell.
    with serving(ServedModels([echo("float32")])) as port:
        reply = post(port, "/v1/models/m:predict", b'{"instances": [[NaN, -Infinity], [0.2, Infinity]]}')
        assert reply.body == b'{"predictions": [[NaN,-Infinity],[0.2,Infinity]]}'
    reply = post(numbers, "/v1/models/m:predict", body)
    first, second = (row["quotient"] for row in json.loads(reply.body)["predictions"])
    assert math.isnan(first[0])
    assert first[1] == -math.inf
    assert second == [math.inf, math.inf]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "a JSON object is expected"),
        (b"[" * 100_000, "not JSON"),
        (b'{"instances": NaN', "not JSON"),
        (b'{"instances": [' + b"9" * 5000 + b", NaN]}", "not JSON"),
        (b'{"NaN": ' + b"[" * 100_000, "nested too deep"),
        ({}, "neither instances nor inputs"),
        ({"instances": [IMAGE], "inputs": [IMAGE]}, "both instances and inputs"),
        ({"instances": [IMAGE], "signature_name": "other"}, "no signature 'other'"),
        ({"instances": IMAGE[0]}, "lists of 3 dimensions"),
        ({"instances": 5}, "a list is expected"),
        ({"instances": []}, "empty"),
        ({"instances": [[]]}, "empty at depth 2"),
        ({"instances": [[[], []]]}, "shape [1, 2, 0], and the model takes [any, 4, 3]"),
        ({"instances": [IMAGE[:3]]}, "shape [1, 3, 3], and the model takes [any, 4, 3]"),
        ({"instances": [[[1, 2, 3]] * 3 + [[1, 2]]]}, "ragged: lists of 2 and of 3"),
        ({"instances": [[[1, 2, 3]] * 3 + [[1, 2, [3]]]]}, "a list, and the model takes float32"),
        ({"instances": [IMAGE, IMAGE[:2]]}, "ragged"),
        ({"instances": [[[1, 2, "3"]] * 4]}, '"3", and the model takes float32'),
        ({"instances": [[[1, 2, None]] * 4]}, "null, and the model takes float32"),
        ({"instances": [[[1, 2, True]] * 4]}, "true, and the model takes float32"),
        ({"instances": [[[1, 2, 1e300]] * 4]}, "1e+300, which does not fit float32"),
        ({"instances": [{"picture": IMAGE}]}, "no input 'picture' and the input 'image' is missing"),
        ({"instances": [{"image": IMAGE}, 3]}, "objects and 3"),
        ({"instances": [{"image": IMAGE, "x": 1}]}, "no input 'x'; it takes 'image' (float32 [any, 4, 3])"),
        ({"inputs": {}}, "'image' is missing"),
        ({"inputs": None}, "lists of 3 dimensions"),
    ],
)
def test_a_mistake_is_answered_with_what_is_wrong(images: int, body: Any, says: str) -> None:
    assert says in refused(images, body)


def test_mistakes_in_several_inputs(numbers: int) -> None:
    assert "'b' is missing" in refused(numbers, {"instances": [{"a": [1, 2]}]})
    assert "'a' is missing; it takes 'a' (float64 [any, 2])" in refused(numbers, {"instances": [[1, 2]]})
    assert "different numbers of rows: 'a' 1, 'b' 2" in refused(
        numbers, {"inputs": {"a": [[1, 2]], "b": [1, 2]}}
    )
    assert "300, which does not fit int8" in refused(numbers, {"inputs": {"a": [[1, 2]], "b": [300]}})
    assert "1.5, which does not fit int8" in refused(numbers, {"inputs": {"a": [[1, 2]], "b": [1.5]}})
    assert "the model refuses this: b is negative" in refused(numbers, {"inputs": {"a": [[1, 2]], "b": [-1]}})


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("uint8", [0, 255], [0, 300]),
        ("uint8", [1, 2], [-1, 0]),
        ("int64", [2**63 - 1, -(2**63)], [2**63, 0]),
        ("uint64", [2**64 - 1, 0], [2**64, 0]),
        ("int32", [1, 2], [1.0, 2]),
        ("bool", [True, False], [1, 0]),
        ("float16", [0.5, 65504], [65536, 0]),
        ("float64", [1e300, 5], ["1", 2]),
        ("string", ["a", "é\n"], ["a", 1]),
    ],
)
def test_each_type_takes_its_values_and_no_others(dtype: str, good: list[Any], bad: list[Any]) -> None:
    with serving(ServedModels([echo(dtype)])) as port:
        assert predict(port, {"instances": [good, good]}) == {"predictions": [good, good]}
        assert refused(port, {"instances": [bad]})


def test_text_may_be_base64_and_bytes_come_back_as_such() -> None:
    encoded = {"b64": base64.b64encode(b"\xff\x00raw").decode()}
    with serving(ServedModels([echo("string", (None,))])) as port:
        assert predict(port, {"instances": ["a", encoded]}) == {"predictions": ["a", encoded]}
        assert predict(port, {"instances": [encoded]}) == {"predictions": [encoded]}
        assert predict(port, {"inputs": [{"b64": "YWJj"}]}) == {"outputs": ["abc"]}
        assert "not base64" in refused(port, {"instances": [{"b64": "?"}]})


def test_one_number_for_each_example() -> None:
    with serving(ServedModels([echo("float32", (None,))])) as port:
        assert predict(port, {"instances": [1.0, 2.5]}) == {"predictions": [1.0, 2.5]}
        assert post(port, "/v1/models/m:regress", {"examples": [{"x": 1.5}, {"x": 2}]}).data == {
            "results": [1.5, 2.0]
        }


def test_classify_names_the_classes_best_first(images: int) -> None:
    reply = post(images, "/v1/models/m:classify", {"examples": [{"image": IMAGE}], "context": {}})
    [pairs] = reply.data["results"]
    scores = dict(zip(("cat", "dog", "owl"), expected(2, count=1)[0].tolist()))
    assert [label for label, _ in pairs] == sorted(scores, key=lambda label: -scores[label])
    assert all(scores[label] == score for label, score in pairs)
    assert post(images, "/v1/models/m:classify", {"instances": [IMAGE]}).status == 400
    assert post(images, "/v1/models/m:regress", {"examples": [{"image": IMAGE}]}).status == 400


def test_status_and_metadata(images: int) -> None:
    status = get(images, "/v1/models/m").data
    assert [one["version"] for one in status["model_version_status"]] == ["2", "1"]
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    assert status["id"] == "m"  # OpenAI's clients ask at the same address
    [only] = get(images, "/v1/models/m/versions/1").data["model_version_status"]
    assert only["version"] == "1"
    metadata = get(images, "/v1/models/m/metadata").data
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert [one["size"] for one in signature["inputs"]["image"]["tensor_shape"]["dim"]] == ["-1", "4", "3"]
    assert signature["outputs"]["scores"]["dtype"] == "DT_FLOAT"
    assert metadata["model_spec"] == {"name": "m", "signature_name": "", "version": "2"}


def test_a_text_and_a_number_for_each_row() -> None:
    manifest = Manifest(
        format="python",
        inputs=(Tensor("body", "string", (None,)),),
        outputs=(Tensor("title", "string", (None,)), Tensor("length", "int64", (None,))),
    )
    titled = Computed(
        manifest, lambda given: {"title": given["body"], "length": np.array(list(map(len, given["body"])))}
    )
    with serving(ServedModels([titled])) as port:
        answer = predict(port, {"instances": ["ab", "é"]})
    assert answer == {"predictions": [{"title": "ab", "length": 2}, {"title": "é", "length": 1}]}
