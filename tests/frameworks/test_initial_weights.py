"""`oarlock run --from`: a new run starts from the weights of another, and takes nothing else from it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.checkpoints.store import Store
from oarlock.records import runs
from tests.support.soaking import cases, only_in_soak

Command = Callable[..., subprocess.CompletedProcess[str]]

# Each prints, before its first step: the sum of its weights, that of the optimizer's state, and the step.
# Then it trains; with "die" as the second argument, its first generation dies at step 7.
TORCH = """
import torch
torch.manual_seed(len(sys.argv))
model = torch.nn.Sequential(torch.nn.Linear(4, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.1)
state = oarlock.State(model=model, optimizer=optimizer, seen=0)
def weights():
    return sum(float(one.detach().abs().sum()) for one in model.state_dict().values())
def moments():
    found = optimizer.state_dict()["state"].values()
    return sum(float(one["exp_avg"].abs().sum()) for one in found)
def train(step):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""
JAX = """
import jax, optax
drawn = jax.random.normal(jax.random.key(len(sys.argv)), (4, WIDTH))
params = {"first": {"w": drawn}, "scale": jax.numpy.ones(2)}
tool = optax.adam(0.1)
state = oarlock.State(params=params, tool=tool.init(params), key=jax.random.key(1), seen=0)
def total(tree):
    return float(sum(abs(leaf).sum() for leaf in jax.tree_util.tree_leaves(tree) if leaf.ndim))
def weights():
    return total(state.params)
def moments():
    return total(state.tool)
def loss(params, x):
    return ((x @ params["first"]["w"]).sum(1) * params["scale"][0]).var()
def train(step):
    slopes = jax.grad(loss)(state.params, jax.random.normal(jax.random.fold_in(state.key, step), (8, 4)))
    updates, state.tool = tool.update(slopes, state.tool)
    state.params = optax.apply_updates(state.params, updates)
"""
KERAS = """
import keras, numpy as np
keras.utils.set_random_seed(len(sys.argv))
layers = keras.layers
model = keras.Sequential(
    [keras.Input((4,)), layers.Dense(WIDTH), layers.BatchNormalization(), layers.Dense(1)]
)
optimizer = keras.optimizers.Adam(0.1)
optimizer.build(model.trainable_variables)
model.compile(optimizer=optimizer, loss="mse")
state = oarlock.State(model=model, optimizer=optimizer, seen=0)
def weights():
    return sum(float(np.abs(one.numpy()).sum()) for one in model.weights)
def moments():
    return sum(float(np.abs(one.numpy()).sum()) for one in optimizer.variables if "momentum" in one.path)
def train(step):
    model.train_on_batch(np.random.rand(8, 4), np.zeros((8, 1)))
"""
NUMPY = """
import numpy as np
params = {"w": np.full((4, WIDTH), float(len(sys.argv))), "count": np.arange(3)}
state = oarlock.State(params=params, optimizer={"m": np.zeros(4)}, seen=0)
def weights():
    return float(abs(params["w"]).sum())
def moments():
    return float(state.optimizer["m"].sum())
def train(step):
    params["w"] += 1
    state.optimizer["m"] += 1
"""
PROGRAMS = {"torch": TORCH, "jax": JAX, "keras": KERAS, "numpy": NUMPY}
DIFFERENCES = {
    "numpy": r"params: params\.w had shape \(4, 3\) and has \(4, 5\) now",
    "torch": r"model: 0\.weight had shape \(3, 4\) and has \(5, 4\) now; .*and \d+ more",
    "jax": r"params: first\.w had shape \(4, 3\) and has \(4, 5\) now",
    "keras": r"model: .*kernel had shape \(4, 3\) and has \(4, 5\) now; .*and \d+ more",
}
LOOP = """
me = oarlock.current()
print("begin", json.dumps([round(weights(), 3), round(moments(), 3), state.step, state.seen]), flush=True)
for step in state.steps(int(sys.argv[1]), save=5):
    if sys.argv[2:] == ["die"] and me.generation == 1 and step == 7:
        state._session.finish()
        os._exit(7)
    train(step)
    state.seen += 1
print("end", json.dumps([round(weights(), 3), round(moments(), 3), state.step, state.seen]), flush=True)
"""


def written(folder: Path, framework: str, width: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / "train.py"
    head = f"import json, os, sys\nimport oarlock\nWIDTH = {width}\n"
    program.write_text(head + PROGRAMS[framework] + LOOP)
    return program


def numbers(text: str, when: str) -> list[float]:
    """What the program printed: weights, moments, step, examples seen."""
    [line] = re.findall(rf"\| {when} (\[.*\])$", text, re.MULTILINE)[-1:]
    return [float(one) for one in json.loads(line)]


@pytest.mark.parametrize("framework", cases(["torch"], soak=["keras", "jax", "numpy"]))
def test_a_run_begins_with_the_weights_of_another_and_nothing_else(
    oarlock: Command, tmp_path: Path, framework: str
) -> None:
    program = str(written(tmp_path / "job", framework))
    first = oarlock("run", "--name", "first", program, "10")
    assert first.returncode == 0, first.stdout + first.stderr
    trained = numbers(first.stdout, "end")
    assert trained[1] > 0, "its optimizer has moments"
    second = oarlock("run", "--name", "second", "--from", "first", program, "10", "die")
    assert second.returncode == 0, second.stdout + second.stderr
    begins = re.findall(r"\| begin (\[.*\])$", second.stdout, re.MULTILINE)
    assert [json.loads(line)[2:] for line in begins] == [[0, 0], [5, 5]], "its own checkpoint wins"
    weights, moments, *_ = json.loads(begins[0])
    assert (weights, moments) == (trained[0], 0.0)
    assert json.loads(begins[1])[1] > 0, "a restart restores everything"
    assert "starts from the weights of first, step 10" in second.stdout
    assert "storage:\n  weights: " in runs.find("second").job_file.read_text()


@only_in_soak
def test_a_step_can_be_chosen_in_a_run_or_a_folder(oarlock: Command, tmp_path: Path) -> None:
    program = str(written(tmp_path / "job", "numpy"))
    assert oarlock("run", "--name", "first", program, "10").returncode == 0
    folder = runs.find("first").path / "checkpoints"
    for source in ("first@5", f"{folder}@5", f"{folder}/step-0000000005-g1", f"{folder.parent}@5"):
        done = oarlock("run", "--from", source, program, "6", "more")
        assert done.returncode == 0, done.stdout + done.stderr
        assert numbers(done.stdout, "begin")[0] == 4 * 3 * (2 + 5)
        assert "starts from the weights of first, step 5" in done.stdout
    done = oarlock("run", "--from", "first@7", program, "6")
    assert done.returncode == 1
    assert "has no checkpoint of step 7; it has 10, 5" in done.stderr
    done = oarlock("run", "--from", "nothing", program, "6")
    assert done.returncode != 0
    assert "--from takes a run, a folder of checkpoints or a URL" in done.stderr
    assert Store(folder).names() == ["step-0000000010-g1", "step-0000000005-g1"], "left as it was"


@pytest.mark.parametrize("framework", cases(["torch"], soak=["numpy", "keras", "jax"]))
def test_weights_that_do_not_fit_are_three_lines(oarlock: Command, tmp_path: Path, framework: str) -> None:
    assert oarlock("run", "--name", "first", str(written(tmp_path / "job", framework)), "5").returncode == 0
    wider = written(tmp_path / "wider", framework, width=5)
    done = oarlock("run", "--from", "first", "--set", "limits.restarts=0", str(wider), "5")
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert "the weights of first, step 5, do not fit this program:" in told
    assert re.search(DIFFERENCES[framework], told), told
    assert "Begin without them (--from, storage.weights), or with a model of the same shapes" in told


def test_a_program_that_does_not_take_them_is_told(oarlock: Command, tmp_path: Path) -> None:
    assert oarlock("run", "--name", "first", str(written(tmp_path / "job", "numpy")), "5").returncode == 0
    (tmp_path / "other.py").write_text("print('hello')")
    done = oarlock("run", "--from", "first", str(tmp_path / "other.py"))
    assert done.returncode == 0
    assert "the program did not start from the weights of" in done.stdout


def test_a_run_that_continues_its_own_checkpoint_is_not_told_that_it_took_none(
    oarlock: Command, tmp_path: Path
) -> None:
    program = str(written(tmp_path / "job", "numpy"))
    assert oarlock("run", "--name", "first", program, "5").returncode == 0
    fixed = ("--set", "storage.checkpoints=./fixed", program)
    assert oarlock("run", *fixed, "5").returncode == 0
    done = oarlock("run", "--from", "first", *fixed, "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers(done.stdout, "begin")[2:] == [5, 5]
    assert "is not used: the run has checkpoints of its own (step-0000000005-g1)" in done.stdout
    assert "did not start from the weights" not in done.stdout


def test_a_resumed_run_keeps_what_is_its_own(oarlock: Command, tmp_path: Path) -> None:
    program = str(written(tmp_path / "job", "numpy"))
    assert oarlock("run", "--name", "first", program, "5").returncode == 0
    failed = oarlock(
        "run", "--name", "second", "--from", "first", "--set", "limits.restarts=0", program, "10", "die"
    )
    assert failed.returncode == 7, failed.stdout + failed.stderr
    resumed = oarlock("run", "--resume", "second")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert numbers(resumed.stdout, "begin")[2:] == [5, 5]
    assert numbers(resumed.stdout, "end")[0] == 4 * 3 * (2 + 5 + 10), "of the first run, and its own"
    refused = oarlock("run", "--resume", "second", "--from", "first")
    assert "--resume uses the job as it was; remove --from" in refused.stderr
