"""A program exports a model; another process, which has the folder only, gives the same answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# A fixture imports a framework in two processes, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE = 550
MODELS = {
    "tensorflow": ["keras", "plain", "tf_keras", "text", "function", "signatures", "archive"],
    "torch": ["torch", "plain"],
    "jax": ["jax", "plain", "tuple"],
}


def _run(program: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / program, folder],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    _run(f"export_{request.param}.py", folder)
    _run("answer.py", folder)
    return request.param, folder


def _said(folder: Path, model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "answers" / f"{model}.json").read_text())
    return found


def test_the_same_inputs_give_the_same_outputs(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    answers = sorted(path.stem for path in (folder / "answers").glob("*.npz"))
    assert answers == sorted(MODELS[framework])
    for model in MODELS[framework]:
        with (
            np.load(folder / f"{model}.npz") as expected,
            np.load(folder / "answers" / f"{model}.npz") as found,
        ):
            outputs = {name[4:] for name in expected.files if name.startswith("out.")}
            assert set(found.files) == outputs, model
            assert found.files == [one["name"] for one in _said(folder, model)["manifest"]["outputs"]], model
            for name in outputs:
                right, answer = expected[f"out.{name}"], found[name]
                assert right.shape == answer.shape, (model, name)
                if right.dtype.kind in "Ui":
                    assert right.tolist() == answer.tolist(), (model, name)
                else:
                    np.testing.assert_allclose(answer, right, 1e-4, 1e-5, err_msg=f"{model} {name}")


def test_the_manifest_names_what_goes_in_and_comes_out(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    for model in MODELS[framework]:
        manifest = _said(folder, model)["manifest"]
        with np.load(folder / f"{model}.npz") as file:
            for which, prefix in (("inputs", "in."), ("outputs", "out.")):
                arrays = {name[len(prefix) :]: file[name] for name in file.files if name.startswith(prefix)}
                assert {one["name"] for one in manifest[which]} == arrays.keys(), model
                for one in manifest[which]:
                    array = arrays[one["name"]]
                    assert one["shape"][0] is None, (model, one)
                    assert all(size in (None, real) for size, real in zip(one["shape"], array.shape)), (
                        model,
                        one,
                    )
                    assert len(one["shape"]) == array.ndim, (model, one)
                    assert (one["dtype"] == "string") == (array.dtype.kind == "U"), (model, one)
        written = folder / model / "1" / "oarlock.json"
        assert written.exists() != (model == "plain")
        if written.exists():
            stored = json.loads(written.read_text())
            assert (stored["inputs"], stored["outputs"]) == (manifest["inputs"], manifest["outputs"])


def test_inputs_of_another_shape_are_refused_in_a_sentence(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    for model in MODELS[framework]:
        if model not in ("text", "tuple", "archive"):  # these compute something for any shape
            refusal = _said(folder, model)["refusal"]
            assert refusal.startswith("the model refuses these inputs: "), model
            assert "\n" not in refusal


def test_a_version_says_where_it_comes_from(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    if framework != "tensorflow":
        assert _said(folder, framework)["manifest"]["frameworks"].keys() == {framework}
        return
    manifest = _said(folder, "keras")["manifest"]
    assert (manifest["kind"], manifest["labels"]) == ("image", list("0123456789"))
    assert (manifest["run"], manifest["step"]) == ("local", 12)
    assert manifest["scores"] == {"loss": 0.25, "accuracy": 0.5}
    assert {"tensorflow", "keras"} <= manifest["frameworks"].keys()
    assert not (folder / "another").exists()


def test_a_faster_form_is_only_used_where_there_is_one(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    if framework != "tensorflow":
        assert _said(folder, framework)["form"] == f"{framework}.export"
        return
    for model in ("keras", "plain"):  # which one depends on the machine
        said = _said(folder, model)
        assert said["form"].startswith("LiteRT, ") or said["notes"] == [
            "SavedModel is used: LiteRT is not faster"
        ]
    assert (folder / "keras" / "1" / "model.tflite").exists()
    for model, reason in (("text", "LiteRT takes no text"), ("archive", "LiteRT takes no text")):
        said = _said(folder, model)
        assert (said["form"], said["notes"]) == ("SavedModel", [f"SavedModel is used: {reason}"])


def test_a_damaged_model_is_refused_in_a_sentence(exported: tuple[str, Path]) -> None:
    framework, folder = exported
    said: dict[str, str] = json.loads((folder / "damage.json").read_text())
    for case, text in said.items():
        assert "\n" not in text
        if "form" not in case:
            assert text.startswith("version 1: "), (case, text)
            assert str(folder / "broken" / case / "1") in text, (case, text)
    if framework == "tensorflow":
        assert said["another's form"].startswith("SavedModel: ['SavedModel is used: the LiteRT form takes x:")
        assert said["no form"].startswith("SavedModel: ['SavedModel is used: LiteRT cannot load it: ")


def test_other_servers_find_the_layout_that_they_document(exported: tuple[str, Path]) -> None:
    """TensorFlow Serving: MODEL/1/saved_model.pb and variables; Triton, which KServe uses: MODEL/1/model.…"""
    framework, folder = exported
    file = {"tensorflow": "saved_model.pb", "torch": "model.pt2", "jax": "model.jax"}[framework]
    model = {"tensorflow": "keras"}.get(framework, framework)
    assert [path.name for path in (folder / model).iterdir()] == ["1"]
    assert (folder / model / "1" / file).is_file()
    if framework == "tensorflow":
        assert (folder / model / "1" / "variables" / "variables.index").is_file()
