"""Exports models of torch, each into a folder of its own beside the inputs and the program's answers."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import oarlock

FOLDER = Path(sys.argv[1])
CHANCE = np.random.default_rng(3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.second = (
            torch.nn.Linear(6, 8),
            torch.nn.Dropout(),
            torch.nn.Linear(8, 3),
        )

    def forward(self, pixels, scale):
        scores = self.second(self.dropout(torch.relu(self.first(pixels)))) * scale[:, None]
        return {"scores": scores, "best": scores.argmax(-1)}


class Branches(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def keep(name, inputs, outputs):
    arrays = {f"in.{key}": one for key, one in inputs.items()}
    arrays |= {f"out.{key}": one.detach().numpy() for key, one in outputs.items()}
    np.savez(FOLDER / f"{name}.npz", **arrays)


def main():
    model = Net()
    pixels, scale = CHANCE.normal(size=(5, 6)).astype("float32"), np.arange(5, dtype="float32")
    example = (torch.tensor(pixels[:1]), torch.tensor(scale[:1]))
    version = oarlock.export(model, example=example, folder=FOLDER / "torch")
    assert model.training  # what is exported is a copy
    model.eval()
    outputs = model(torch.tensor(pixels), torch.tensor(scale))
    keep("torch", {"pixels": pixels, "scale": scale}, outputs)
    (FOLDER / "plain").mkdir()
    (FOLDER / "plain" / "model.pt2").write_bytes((version / "model.pt2").read_bytes())
    keep("plain", {"pixels": pixels, "scale": scale}, outputs)
    for bad, example, words in (
        (Branches(), pixels, "torch.export cannot export this Branches"),
        (model, None, "pass example="),
        (model, {"pixel": pixels}, "example has 'pixel', and the model takes pixels, scale"),
        (model, (pixels, scale[:2]), "the first dimension"),
    ):
        with pytest.raises(ValueError, match=words):
            oarlock.export(bad, example=example, folder=FOLDER / "refused")
    assert list((FOLDER / "refused").iterdir()) == []


if __name__ == "__main__":
    main()
