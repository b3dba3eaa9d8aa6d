"""The program of docs/keras.md for JAX: two workers, one of them killed, end with the weights of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.gangs import Gang

PAGE = (Path(__file__).parents[2] / "docs/keras.md").read_text()
[PROGRAM] = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PARTS = "((x[mine], y[mine]) for _, mine in batches.from_step(callbacks.step))"
DIES = """
import signal
from oarlock.system.polling import wait_for

def parts():
    for step, mine in batches.from_step(callbacks.step):
        if (task.generation, task.rank, step) == (1, 1, 25):
            wait_for(lambda: any(task.checkpoints.glob("step-*")), "a checkpoint", 120)
            os.kill(os.getpid(), signal.SIGKILL)
        yield x[mine], y[mine]

model.fit(
    parts()"""


def test_two_workers_on_jax_learn_what_one_learns_though_one_is_killed(home: Path, tmp_path: Path) -> None:
    dying = PROGRAM.replace(f"model.fit(\n    {PARTS}", DIES)
    assert dying != PROGRAM
    alone = _weights(tmp_path / "alone", PROGRAM, {"worker": 1})
    both = _weights(tmp_path / "both", dying, {"worker": 2}, restarts=1)
    assert len(alone) == len(both) == 4
    for one, other in zip(alone, both, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def _weights(folder: Path, program: str, roles: dict[str, int], restarts: int = 0) -> list[Any]:
    gang = Gang(folder, program, roles=roles, warm="20s")
    assert gang.end().state == "succeeded", gang.told()
    assert gang.state.restarts == restarts, gang.told()
    resumed = [event for event in gang.of("note") if "resuming from step" in event["text"]]
    assert len(resumed) == restarts, gang.told()
    with np.load(gang.run.path / "model" / "weights.npz") as saved:
        return [saved[name] for name in saved.files]
