"""A thousand faults at random moments, over the three frameworks: tasks killed and paused, gangs preempted.
Each program has two workers, keeps its state, and has to recover from every one of them at the first go.

    make soak                                            # OARLOCK_FAULTS=30 for a short one
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.gangs import Gang
from tests.support.killing import TENSORFLOW, TORCH

FAULTS = int(os.environ.get("OARLOCK_FAULTS", "1000"))
HEADER = ("framework", "faults", "recovered", "kill", "pause", "preempt", "median", "p99", "max", "repeated")

JAX = """
import jax, jax.numpy as jnp, numpy as np, oarlock
from jax.sharding import Mesh, NamedSharding, PartitionSpec
me = oarlock.current()
jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("ranks",))
def place(array, *parts):
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec(*parts)), array)
@jax.jit
def train(weights, x):
    loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((x @ weights) ** 2))(weights)
    return weights - 0.01 * gradient, loss
def step():
    state.weights, loss = train(state.weights, place(np.ones((8, 4), "float32"), "ranks"))
    return float(loss)
state = oarlock.State(weights=place(np.ones((4, 1), "float32")))
"""
KEEPING = "state = oarlock.State(model=model, optimizer=optimizer)\n"
STEPPING = """
import time
for _ in state.steps(10**9, save=20):
    state.report(loss=step())
    time.sleep(0.01)
"""
PROGRAMS = {"torch": TORCH + KEEPING, "tensorflow": TENSORFLOW + KEEPING, "jax": JAX}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_thousand_faults(
    oarlock: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    framework: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    number = list(PROGRAMS).index(framework)
    faults = FAULTS // len(PROGRAMS) + (number < FAULTS % len(PROGRAMS))
    program = PROGRAMS[framework] + STEPPING
    gang = Gang(tmp_path / "job", program, limits={"restarts": 1_000_000, "stall": "60s"})
    gang.until(lambda gang: gang.of("report"), "first step", 180)
    words = ("--yes", "--json", "--faults", str(faults), "--every", "0.3s", "--pause", "0.3s")
    done = oarlock("chaos", gang.run.name, *words, "--seed", str(number), timeout=3500)
    report = json.loads(done.stdout)
    kinds = Counter(fault["kind"] for fault in report["faults"])
    with capsys.disabled():
        _print(framework, report, kinds)
    assert done.returncode == 0, report["problem"] or report["faults"][-1]
    assert report["inflicted"] == report["recovered"] == faults
    gang.look()
    charged = [(event["task"], event["reason"]) for event in gang.of("restart") if not event["forgiven"]]
    killed = [fault["target"] for fault in report["faults"] if fault["kind"] == "kill"]
    assert charged == [(task, "killed by SIGKILL") for task in killed], (
        "one failure for each kill, and no other"
    )
    assert len(gang.of("restart")) == kinds["kill"] + kinds["preempt"], "one restart was enough"
    for fault in report["faults"]:
        if fault["kind"] == "preempt":
            assert fault["resumed"] == fault["step"] + 1, fault


def _print(framework: str, report: dict[str, Any], kinds: Counter[str]) -> None:
    times = [f"{report['recovery'][name] or 0:.2f} s" for name in ("median", "p99", "max")]
    counts = [report["inflicted"], report["recovered"], kinds["kill"], kinds["pause"], kinds["preempt"]]
    about = "about " if any(fault["about"] for fault in report["faults"]) else ""
    row = [framework, *map(str, counts), *times, f"{about}{report['repeated']}"]
    for cells in ([HEADER] if framework == next(iter(PROGRAMS)) else []) + [row]:
        print("\n" + "".join(f"{cell:>11}" for cell in cells), end="")
