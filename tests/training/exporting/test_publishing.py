"""`oarlock.export` without a framework: versions, files, what is refused, and who leaves something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oarlock
from oarlock.models.model_versions import versions
from oarlock.training.exporting.written_model import ExportError

PREDICT = """
import json
from scaling import scaled  # beside this file, as weights.json is

def load(folder):
    return Model(json.loads((folder / "weights.json").read_text()))

class Model:
    def __init__(self, weight):
        self.weight = weight

    def predict(self, inputs):
        return {"y": scaled(inputs["x"], self.weight), "who": [text.upper() for text in inputs["who"]]}
"""
EXAMPLE = {"x": [[1.0, 2.0]], "who": ["me"]}


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program in its own format; MODEL_DIR is `model` in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "MODEL_DIR"):
        monkeypatch.delenv(name, raising=False)
    Path("predict.py").write_text(PREDICT)
    Path("scaling.py").write_text("def scaled(x, weight):\n    return x * weight\n")
    Path("weights.json").write_text("3")
    return tmp_path


def _export(**settings: Any) -> Path | None:
    given = {"example": EXAMPLE, "files": ["scaling.py", "weights.json"], **settings}
    return oarlock.export("predict.py", **given)


def test_each_export_is_the_next_version(program: Path) -> None:
    assert _export() == Path("model", "1")
    assert _export() == Path("model", "2")
    assert [one.number for one in versions(program / "model")] == [1, 2]
    assert sorted(path.name for path in Path("model", "2").iterdir()) == [
        *("example.npz", "oarlock.json", "predict.py", "scaling.py", "weights.json")
    ]


def test_an_example_tells_names_types_and_shapes() -> None:
    _export(kind="text", labels=["a", "b"], step=7, scores={"loss": 0.5, "note": "no score"})
    [version] = versions(Path("model"))
    stored = version.manifest()
    assert [(one.name, one.dtype, one.shape) for one in stored.inputs] == [
        ("x", "float64", (None, 2)),
        ("who", "string", (None,)),
    ]
    assert [(one.name, one.dtype, one.shape) for one in stored.outputs] == [
        ("y", "float64", (None, 2)),
        ("who", "string", (None,)),
    ]
    assert (stored.format, stored.entry, stored.kind) == ("python", "predict.py", "text")
    assert (stored.labels, stored.step, stored.scores) == (("a", "b"), 7, {"loss": 0.5})
    assert stored.files == {"scaling.py": "scaling.py", "weights.json": "weights.json"}


def test_without_an_example_nothing_is_run_and_the_manifest_says_nothing_of_shapes() -> None:
    Path("predict.py").write_text("raise RuntimeError\ndef load(folder): ...")
    _export(example=None, kind="completion")
    [version] = versions(Path("model"))
    assert (version.manifest().inputs, version.manifest().outputs) == ((), ())


def test_files_have_names_and_may_be_folders() -> None:
    Path("words", "more").mkdir(parents=True)
    Path("words", "more", "list.txt").write_text("word")
    version = _export(files={"vocabulary": "words", "scale": "scaling.py", "weights": "weights.json"})
    assert version
    assert (version / "words" / "more" / "list.txt").read_text() == "word"
    stored = json.loads((version / "oarlock.json").read_text())
    assert stored["files"] == {"vocabulary": "words", "scale": "scaling.py", "weights": "weights.json"}


def test_only_the_leader_leaves_a_version(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    before = sorted(path.name for path in program.iterdir())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _export() is None
    assert sorted(path.name for path in program.iterdir()) == before
    monkeypatch.setenv("RANK", "0")
    assert _export() == Path("model", "1")


def test_it_goes_where_it_should(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL_DIR", str(tmp_path / "kept"))
    assert _export() == tmp_path / "kept" / "1"
    assert _export(folder="mine") == Path("mine", "1")
    monkeypatch.setenv("MODEL_DIR", "s3://bucket/model")
    with pytest.raises(ExportError, match=r"the model folder is s3://bucket/model, .*pass folder="):
        _export()


def test_what_the_program_reported_last_is_where_it_comes_from() -> None:
    oarlock.current().report(41, total=50, loss=0.5, epoch=1)
    oarlock.current().report(42, total=50, accuracy=0.9)
    _export()
    [version] = versions(Path("model"))
    found = version.manifest()
    assert (found.run, found.step) == ("local", 42)
    assert found.scores["accuracy"] == 0.9
    assert found.scores["loss"] == 0.5
    assert "epoch" not in found.scores


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("predict.py", {"kind": "picture"}, r"kind='picture': a model's kind is tensor, image, text, completion"),
    ("missing.py", {}, r"missing\.py cannot be read: No such file"),
    ("model.bin", {}, r"model\.bin cannot be exported: give the path of an \.onnx file or of a predict\.py"),
    (3, {}, r"a int cannot be exported: give a Keras model"),
    ("scaling.py", {}, r"scaling\.py has no function load\(folder\)"),
    ("predict.py", {"files": ["none.txt"]}, r"files: none\.txt does not exist"),
    ("predict.py", {"files": "weights.json"}, r"give a list of paths, or a mapping"),
    ("predict.py", {"files": ["predict.py"]}, r"two files of the model are called predict\.py"),
    ("predict.py", {"files": ["sub/oarlock.json"]}, r"has the name of the model's own manifest"),
    (
        "predict.py",
        {"files": ["weights.json"]},
        r"predict\.py does not answer the example: ModuleNotFoundError",
    ),
    ("predict.py", {"example": {"x": [1.0]}}, r"does not answer the example: KeyError: 'who'"),
    ("predict.py", {"example": [1.0]}, r"takes arrays by name: pass a dict"),
    ("predict.py", {"example": {"x": 1.0}}, r"the first dimension of each input counts the examples"),
    ("predict.py", {"example": {"x": [1, 2], "who": ["me"]}}, r"found x: \(2,\), who: \(1,\)"),
]


@pytest.mark.parametrize(("model", "settings", "said"), REFUSED, ids=[case[2][:30] for case in REFUSED])
def test_a_refusal_is_a_sentence_and_leaves_nothing(model: Any, settings: dict[str, Any], said: str) -> None:
    Path("sub").mkdir()
    Path("sub", "oarlock.json").touch()
    given = {"example": EXAMPLE, "files": ["scaling.py", "weights.json"], **settings}
    with pytest.raises(ExportError, match=said):
        oarlock.export(model, **given)
    assert list(Path().glob("model/*")) == []
