"""Loads every model that another process exported, and stores its answers and what it says of itself."""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

from oarlock.models.model_versions import versions
from oarlock.serving.runtimes import load_runtime
from oarlock.serving.runtimes.runtime import ModelError

FOLDER = Path(sys.argv[1])


def answered(runtime, inputs):
    """All rows at once, row by row, and all once more: batches of other sizes must not leave traces."""
    whole = runtime.run(inputs)
    rows = [runtime.run({name: one[at : at + 1] for name, one in inputs.items()}) for at in range(len(whole))]
    again = runtime.run(inputs)
    for name, one in whole.items():
        assert np.array_equal(one, again[name])
        for at, row in enumerate(rows):
            same = (
                one[at] == row[name][0]
                if one.dtype == object
                else np.allclose(one[at], row[name][0], 1e-4, 1e-5)
            )
            assert np.all(same), name
    return whole


def damaged(stored, name, change):
    """What is said of a copy of the model after a change."""
    broken = FOLDER / "broken" / name
    shutil.copytree(FOLDER / stored / "1", broken / "1")
    change(broken / "1")
    notes = []
    try:
        runtime = load_runtime.load(versions(broken)[0], threads=1, note=notes.append)
    except ModelError as problem:
        return str(problem)
    return f"{runtime.form}: {notes}"


def try_damage():
    """The file of the framework is cut in half, replaced or deleted; the LiteRT form is not the model's."""
    said = {}
    model = next(name for name in ("keras", "torch", "jax") if (FOLDER / name).is_dir())
    file = {"keras": "saved_model.pb", "torch": "model.pt2", "jax": "model.jax"}[model]
    content = (FOLDER / model / "1" / file).read_bytes()
    said["half"] = damaged(model, "half", lambda at: (at / file).write_bytes(content[: len(content) // 2]))
    said["other"] = damaged(model, "other", lambda at: (at / file).write_bytes(b"something else"))
    said["gone"] = damaged(model, "gone", lambda at: (at / file).unlink())
    if model == "keras":
        said["weights"] = damaged(model, "weights", lambda at: shutil.rmtree(at / "variables"))
        lite = (FOLDER / "function" / "1" / "model.tflite").read_bytes()
        said["another's form"] = damaged(model, "form", lambda at: (at / "model.tflite").write_bytes(lite))
        said["no form"] = damaged(
            model, "no", lambda at: (at / "model.tflite").write_bytes(b"something else")
        )
    (FOLDER / "damage.json").write_text(json.dumps(said))


def main():
    for stored in sorted(FOLDER.glob("*.npz")):
        [version] = versions(FOLDER / stored.stem)
        notes = []
        runtime = load_runtime.load(version, threads=1, note=notes.append)
        with np.load(stored) as file:
            inputs = {name[3:]: file[name] for name in file.files if name.startswith("in.")}
        inputs = {name: one.astype(object) if one.dtype.kind == "U" else one for name, one in inputs.items()}
        outputs = answered(runtime, inputs)
        try:
            runtime.run({name: one[..., None, None] for name, one in inputs.items()})
            refusal = ""
        except ModelError as problem:
            refusal = str(problem)
        runtime.run(inputs)  # and answers after it
        said = {
            "form": runtime.form,
            "notes": notes,
            "refusal": refusal,
            "text": [name for name, one in outputs.items() if one.dtype == object],
            "manifest": json.loads(runtime.manifest.to_json()),
        }
        runtime.close()
        folder = FOLDER / "answers"
        folder.mkdir(exist_ok=True)
        (folder / f"{stored.stem}.json").write_text(json.dumps(said))
        np.savez(
            folder / stored.stem,
            **{name: one.astype(str) if one.dtype == object else one for name, one in outputs.items()},
        )


if __name__ == "__main__":
    main()
    try_damage()
