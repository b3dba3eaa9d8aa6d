"""What stands in for the programs, models and tools that pages name: each takes what the real one takes, and
does the least that the next command of a page needs."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.pages import ROOT

TRAIN = """
import time
import oarlock
state = oarlock.State(STATE)
if oarlock.current().role == "evaluator":
    for step in state.follow():
        state.report(accuracy=1.0)
else:
    for step in state.steps(STEPS, save=100, keep=10):
        state.report(loss=1.0, accuracy=1.0)
        time.sleep(SECONDS)
"""


def training(steps: int, seconds: float = 0, state: str = "sum=0") -> str:
    return TRAIN.replace("STEPS", str(steps)).replace("SECONDS", str(seconds)).replace("STATE", state)


QUICK = training(20)
LONG = training(10**6, 0.01)
WITH_WEIGHTS = 'sum=0, weights=__import__("numpy").zeros(3)'
SCORES = """
for step in oarlock.State(sum=0).follow():
    oarlock.current().report(step=step, accuracy=1.0)
"""
ARGUMENTS = "import sys\nassert sys.argv[1:] in ([], ['--epochs', '3']), sys.argv\n"
WEIGHTS = """
if getattr(args, "weights", None):
    import numpy
    numpy.savez(args.weights, weights=numpy.ones(3))
"""
EXPORTS = """
import os, shutil
if oarlock.current().is_chief and "MODEL_DIR" in os.environ:
    shutil.copytree(MODEL, os.path.join(os.environ["MODEL_DIR"], "1"), dirs_exist_ok=True)
"""

DIGITS = """
class Model:
    def predict(self, inputs):
        return {"scores": inputs["image"].reshape(-1, 784)[:, :10]}


def load(folder):
    return Model()
"""
ECHO = """
class Model:
    def predict(self, inputs):
        return {"said": inputs["text"]}


def load(folder):
    return Model()
"""
LETTERS = """
import numpy as np


class Model:
    slots, vocabulary, context = 4, 256, 64

    def encode(self, text):
        return list(text.encode()) or [10]

    def decode(self, token):
        return bytes([token])

    def start(self, slot, tokens):
        return np.eye(256, dtype=np.float32)[tokens[-1]]

    def step(self, slots, positions, tokens):
        return np.eye(256, dtype=np.float32)[list(tokens)]


def load(folder):
    return Model()
"""


def _tensor(name: str, dtype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": [None, *shape]}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "image": (
        DIGITS,
        {
            "inputs": [_tensor("image", "float32", 28, 28)],
            "outputs": [_tensor("scores", "float32", 10)],
            "labels": [str(digit) for digit in range(10)],
        },
    ),
    "text": (ECHO, {"inputs": [_tensor("text", "string")], "outputs": [_tensor("said", "string")]}),
    "completion": (LETTERS, {"inputs": [], "outputs": []}),
}
EXPORTED = {"mnist_keras": "image", "transformer": "text", "gpt_torch": "completion"}

# No cluster: `apply` reads what it gets, and everything else goes no further than the real kubectl, if any.
KUBECTL = """#!/bin/sh
if [ "$1" = apply ]; then
    exec python -c 'import sys, yaml; kinds = [one["kind"] for one in yaml.safe_load_all(sys.stdin)]
assert kinds.count("Job") == 2, kinds'
fi
exec REAL "$@" --dry-run=client
"""


def write_model(folder: Path, kind: str) -> Path:
    """One version."""
    program, described = MODELS[kind]
    manifest = {"version": 1, "format": "python", "kind": kind, "entry": "predict.py", **described}
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(program)
    (folder / "oarlock.json").write_text(json.dumps(manifest))
    return folder


def write_inputs(folder: Path) -> None:
    """What pages give to a model, and to kubectl."""
    Image.new("L", (28, 28)).save(folder / "digit.png")
    (folder / "digits").mkdir()
    for number in range(3):
        shutil.copy(folder / "digit.png", folder / "digits" / f"{number}.png")
    (folder / "rows.jsonl").write_text(f"{json.dumps([[0] * 28] * 28)}\n" * 3)


def write_tools(folder: Path) -> Path:
    """A folder for PATH."""
    folder.mkdir()
    write_tool(folder / "kubectl", KUBECTL.replace("REAL", shutil.which("kubectl") or "true"))
    return folder


def write_tool(file: Path, program: str) -> None:
    file.write_text(program)
    file.chmod(0o755)


def write_examples(folder: Path, models: Path) -> None:
    """Programs with the arguments of the real ones."""
    for example in (ROOT / "examples").iterdir():
        target = folder / example.name
        target.mkdir(parents=True)
        for job in example.glob("*.yaml"):
            shutil.copy(job, target)
        kind = EXPORTED.get(example.name)
        exports = EXPORTS.replace("MODEL,", f"{str(models / kind / '1')!r},") if kind else ""
        (target / "train.py").write_text(_with_arguments(example / "train.py", QUICK + exports))
        for stage, does in (("ingest.py", ""), ("evaluate.py", SCORES)):
            if (example / stage).exists():
                (target / stage).write_text(_with_arguments(example / stage, does))


def _with_arguments(program: Path, does: str) -> str:
    """A program that takes the real one's arguments, and then does something else."""
    source = program.read_text()
    wanted = {"arguments", "how_often"}
    kept = [
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if (isinstance(node, ast.FunctionDef) and node.name in wanted)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    ]
    return "\n\n".join(
        ["import argparse\nimport oarlock", *filter(None, kept), "args = arguments()", does, WEIGHTS]
    )
