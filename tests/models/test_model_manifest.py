"""What a manifest says is read back, and anything odd is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oarlock.models.model_manifest import BadManifest, Manifest, Tensor, read

DIGITS = Manifest(
    format="saved_model",
    inputs=(Tensor("image", "uint8", (None, 28, 28, 1)),),
    outputs=(Tensor("logits", "float32", (None, 10)),),
    kind="image",
    labels=tuple("0123456789"),
    files={"vocabulary": "assets/words.txt"},
    frameworks={"tensorflow": "2.21.0"},
    run="mnist-abcd",
    step=468,
    scores={"accuracy": 0.97},
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read(DIGITS.to_json()) == DIGITS
    assert DIGITS.is_batched


def test_a_model_whose_output_is_one_for_all_examples_takes_one_request_at_a_time() -> None:
    total = Manifest("onnx", DIGITS.inputs, (Tensor("total", "float32", ()),))
    assert not total.is_batched


def test_unknown_fields_are_ignored() -> None:
    data = {**json.loads(DIGITS.to_json()), "later": [1]}
    assert read(json.dumps(data).encode()) == DIGITS


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 99}, "a later Oarlock wrote it"),
        ({"format": "pickle"}, "its format is 'pickle'"),
        ({"kind": "smell"}, "its kind is 'smell'"),
        ({"inputs": {}}, "inputs is not a list"),
        ({"inputs": [{"dtype": "int8", "shape": []}]}, "one of its inputs has no name"),
        ({"inputs": [{"name": "x", "dtype": "object", "shape": []}]}, "'x' has the type 'object'"),
        ({"inputs": [{"name": "x", "dtype": "int8", "shape": [-1]}]}, r"'x' has the shape \[-1\]"),
        ({"inputs": [{"name": "x", "dtype": "int8", "shape": [True]}]}, "'x' has the shape"),
        ({"inputs": [{"name": "x", "dtype": "int8", "shape": []}] * 2}, "two inputs have the same name"),
        ({"files": {"key": "../../.ssh/id_rsa"}}, "a file outside of its folder"),
        ({"entry": "/etc/passwd"}, "a file outside of its folder"),
        ({"labels": "ab"}, "labels is 'ab'"),
        ({"step": "many"}, "step is 'many'"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], sentence: str) -> None:
    data = {**json.loads(DIGITS.to_json()), **change}
    with pytest.raises(BadManifest, match=sentence):
        read(json.dumps(data).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"format": "onnx"', b"{}"])
def test_bytes_that_are_no_manifest_are_refused(content: bytes) -> None:
    with pytest.raises(BadManifest):
        read(content)
