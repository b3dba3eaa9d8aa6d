"""Versions that need no framework, and folders that hold no model: each problem is a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oarlock
from oarlock.models.model_manifest import Manifest
from oarlock.models.model_versions import Version
from oarlock.serving.runtimes import load_runtime
from oarlock.serving.runtimes.runtime import ModelError

ECHO = """
import beside

def load(folder):
    return Echo(folder)

class Echo:
    def __init__(self, folder):
        self.prefix = beside.PREFIX

    def predict(self, inputs):
        if "" in inputs["text"]:
            raise ValueError("a text is empty")
        return {"echo": [self.prefix + text for text in inputs["text"]]}
"""
AROUND = """
def load(folder, model):
    return Around(model)

class Around:
    inputs = {"text": ("string", [None])}
    outputs = {"sum": ("float32", [None])}

    def __init__(self, model):
        self.model = model

    def predict(self, inputs):
        import numpy
        rows = [[float(word) for word in text.split()] for text in inputs["text"]]
        return {"sum": self.model({"x": numpy.array(rows, "float32")})["y"].sum(-1)}
"""


def _texts(*texts: str) -> dict[str, Any]:
    return {"text": np.array(texts, dtype=object)}


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """Two versions of a program in its own format, whose modules have the same names."""
    for prefix in ("one ", "two "):
        (tmp_path / "beside.py").write_text(f"PREFIX = {prefix!r}")
        (tmp_path / "predict.py").write_text(ECHO)
        example = {"text": ["hello"]}
        files = [tmp_path / "beside.py"]
        version = oarlock.export(
            tmp_path / "predict.py", example=example, files=files, folder=tmp_path / "model"
        )
    assert version
    return version.parent


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A model in ONNX: y = 2 * x, for any number of rows."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubling",
        [helper.make_tensor_value_info("x", kind, ["rows", 2])],
        [helper.make_tensor_value_info("y", kind, ["rows", 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    version = oarlock.export(model, folder=tmp_path / "model")
    assert version
    return version


def test_a_program_answers_and_refuses(echo: Path) -> None:
    first, second = (load_runtime.load(Version(number, echo / str(number))) for number in (1, 2))
    assert "beside" not in sys.modules
    assert first.run(_texts("a", "ü"))["echo"].tolist() == ["one a", "one ü"]
    assert second.run(_texts("a"))["echo"].tolist() == ["two a"]
    assert first.run(_texts("a"))["echo"].dtype == object
    assert (first.form, first.manifest.inputs[0].dtype) == ("predict.py", "string")
    with pytest.raises(ModelError, match=r"^the model refuses these inputs: ValueError: a text is empty$"):
        first.run(_texts("a", ""))
    first.close()
    assert second.run(_texts("b"))["echo"].tolist() == ["two b"]


def test_onnx_gives_the_same_answers(doubling: Path) -> None:
    x = np.array([[1, 2], [3, 4], [5, 6]], "float32")
    runtime = load_runtime.load(Version(1, doubling), threads=1)
    assert runtime.run({"x": x})["y"].tolist() == (2 * x).tolist()
    assert runtime.run({"x": x[:1]})["y"].tolist() == [[2, 4]]
    assert runtime.form == "ONNX Runtime"
    assert runtime.manifest == Version(1, doubling).manifest()
    assert [one.shape for one in (*runtime.manifest.inputs, *runtime.manifest.outputs)] == [(None, 2)] * 2
    with pytest.raises(ModelError, match=r"^the model refuses these inputs: "):
        runtime.run({"x": x[:, :1]})


def test_a_model_without_a_manifest_describes_itself(doubling: Path) -> None:
    (doubling / "oarlock.json").unlink()
    found = load_runtime.load(Version(1, doubling)).manifest
    assert [(one.name, one.dtype, one.shape) for one in found.inputs] == [("x", "float32", (None, 2))]
    assert [(one.name, one.dtype, one.shape) for one in found.outputs] == [("y", "float32", (None, 2))]


def test_a_predict_file_runs_before_and_after_a_model(doubling: Path, tmp_path: Path) -> None:
    path = tmp_path / "around.py"
    path.write_text(AROUND)
    runtime = load_runtime.load(Version(1, doubling), path)
    assert runtime.run(_texts("1 2", "3 4"))["sum"].tolist() == [6, 14]
    assert runtime.form == "around.py around ONNX Runtime"
    assert [one.name for one in runtime.manifest.inputs] == ["text"]
    version = oarlock.export(doubling / "model.onnx", predict=path, folder=tmp_path / "wrapped")
    assert version
    stored = load_runtime.load(Version(1, version))
    assert stored.run(_texts("1 2"))["sum"].tolist() == [6]
    with pytest.raises(ModelError, match="the model refuses these inputs"):
        stored.run(_texts("1"))


def _edited(folder: Path, **fields: Any) -> None:
    path = folder / "oarlock.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_manifest_that_does_not_fit_is_refused(doubling: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"inputs": [{"name": "z", "dtype": "float32", "shape": [None]}]}, "whose inputs are x$"),
        (
            {"outputs": [{"name": "y", "dtype": "int8", "shape": [None]}]},
            "'y' has the type int8; in the model it",
        ),
        ({"files": {"words": "words.txt"}}, "version 1: words.txt is missing from "),
        ({"format": "other"}, "its format is 'other'"),
        ({"files": {"words": "../../x"}}, "it names a file outside of its folder"),
        ({"version": 99}, "a later Oarlock wrote it"),
    ]
    stored = (doubling / "oarlock.json").read_text()
    for fields, said in cases:
        (doubling / "oarlock.json").write_text(stored)
        _edited(doubling, **fields)
        with pytest.raises(ModelError, match=said):
            load_runtime.load(Version(1, doubling))


@pytest.mark.parametrize("content", [b"", b"not a model", b"\0" * 100])
def test_a_damaged_file_is_refused(doubling: Path, content: bytes) -> None:
    (doubling / "model.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"^version 1: ONNX Runtime cannot load .*model\.onnx: ") as refused:
        load_runtime.load(Version(1, doubling))
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(doubling: Path, tmp_path: Path) -> None:
    (doubling / "model.onnx").unlink()
    with pytest.raises(ModelError, match=r"^version 1: .*model\.onnx is missing$"):
        load_runtime.load(Version(1, doubling))
    with pytest.raises(ModelError, match=r"^version 3: .* holds no model"):
        load_runtime.load(Version(3, tmp_path / "none"))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("def load(folder:", r"line 1: "),
        ("x = 1", r"has no function load\(folder\)"),
        ("def load(folder): return 3", r"load\(\) gives a int, which has no predict\(inputs\)"),
        ("def load(folder): raise RuntimeError('no weights')", r"load\(\) fails: RuntimeError: no weights$"),
        (
            "import no_such_package\ndef load(folder): ...",
            r"ModuleNotFoundError: No module named 'no_such_package'",
        ),
    ],
)
def test_a_program_that_cannot_be_loaded_is_a_sentence(echo: Path, program: str, said: str) -> None:
    (echo / "2" / "predict.py").write_text(program)
    with pytest.raises(ModelError, match=r"^version 2: .*predict\.py.*" + said) as refused:
        load_runtime.load(Version(2, echo / "2"))
    assert "\n" not in str(refused.value)


def test_a_program_that_gives_no_arrays_by_name_is_told(echo: Path) -> None:
    answers = "class A:\n    def predict(self, inputs): return [1]\ndef load(folder): return A()"
    (echo / "1" / "predict.py").write_text(answers)
    with pytest.raises(ModelError, match=r"predict\(\) gives a list, not a dict of arrays by name"):
        load_runtime.load(Version(1, echo / "1")).run(_texts("a"))


def test_what_to_import_before_the_fork_is_known_from_the_manifest() -> None:
    for format_name, framework in (
        ("saved_model", "tensorflow"),
        ("torch_export", "torch"),
        ("onnx", "onnxruntime"),
    ):
        assert framework in load_runtime.modules(Manifest(format_name, (), ()))
    own = Manifest("python", (), (), frameworks={"torch": "2.13", "numpy": "2.4"})
    assert load_runtime.modules(own) == ("torch", "numpy")
