"""Exports functions of JAX, each into a folder of its own beside the inputs and the program's answers."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import oarlock

FOLDER = Path(sys.argv[1])
CHANCE = np.random.default_rng(3)


def keep(name, inputs, outputs):
    arrays = {f"in.{key}": one for key, one in inputs.items()}
    arrays |= {f"out.{key}": np.asarray(one) for key, one in outputs.items()}
    np.savez(FOLDER / f"{name}.npz", **arrays)


def main():
    weights = jax.random.normal(jax.random.key(0), (4, 3))

    def classify(x, shift):
        scores = jax.nn.softmax(x @ weights + shift[:, None])
        return {"scores": scores, "best": scores.argmax(-1)}

    x, shift = CHANCE.normal(size=(9, 4)).astype("float32"), np.arange(9, dtype="float32")
    version = oarlock.export(jax.jit(classify), example={"x": x, "shift": shift}, folder=FOLDER / "jax")
    keep("jax", {"x": x, "shift": shift}, classify(x, shift))
    (FOLDER / "plain").mkdir()
    (FOLDER / "plain" / "model.jax").write_bytes((version / "model.jax").read_bytes())
    keep("plain", {"x": x, "shift": shift}, classify(x, shift))
    oarlock.export(lambda x: (x + 1, x.sum(-1)), example=x, folder=FOLDER / "tuple")
    keep("tuple", {"x": x}, {"output_0": x + 1, "output_1": x.sum(-1)})
    with pytest.raises(ValueError, match=r"^jax\.export cannot export this function: "):
        oarlock.export(lambda x: x.reshape(9, -1), example=x, folder=FOLDER / "refused")
    assert list((FOLDER / "refused").iterdir()) == []


if __name__ == "__main__":
    main()
