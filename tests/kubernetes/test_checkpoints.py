"""Checkpoints on a cluster: the leader alone has the volume, and every pod goes on from the same step."""

from __future__ import annotations

import json
import re
from pathlib import Path

from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import state_of, until_stepping, written
from tests.support.kubernetes.small import start_detached
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

STEPS = """
import sys, time, oarlock
state = oarlock.State(sum=0, begun=[], large=[0.0] * 100_000)
state.begun = [*state.begun, state.step]
print("starts at", state.step, "with", state.sum)
# Before its last generation it goes on: whoever disturbs it may take as long as it takes.
total = state.step + 40 if oarlock.current().generation >= int(sys.argv[1]) else 10**6
for step in state.steps(total, save=20):
    print("step", step)
    state.sum += step
    time.sleep(0.05)
print("ends with", state.sum, "after", total, "begun at", *state.begun)
"""


def has_made(name: str, steps: int) -> bool:
    """Whether both have, in the first generation."""
    state = state_of(name)
    return state.generation == 1 and all(
        task.state == "running" and (task.step or 0) > steps for task in state.tasks.values()
    )


def pod(api: Api, name: str, leads: bool) -> str:
    which = f"{LEAD}=true" if leads else f"!{LEAD}"
    return str(api.all("Pod", f"{selecting(name)},{which}")[0]["metadata"]["name"])


def said(oarlock: Command, name: str, generation: int, task: str) -> str:
    return oarlock("logs", "--generation", str(generation), "--task", task, name).stdout


def total_of(log: str) -> int:
    """How many steps it has made, of which none is missing in the result."""
    found = re.search(r"ends with (\d+) after (\d+)", log)
    assert found, log
    assert int(found[1]) == sum(range(int(found[2]))), log
    return int(found[2])


@only_in_soak
def test_a_pod_that_is_deleted_costs_no_step(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    """Its gang leaves before the same step, saved by the leader, and goes on there: the worker's new pod
    has an empty disk, and the leader's new pod the volume."""
    name = "kept-pods"
    ended.append(name)
    start_detached(oarlock, name, written(tmp_path / "program", STEPS), "3")
    eventually(lambda: has_made(name, 5), "the first steps")
    api.delete("Pod", pod(api, name, leads=False))
    until_stepping(runs.find(name), 2)
    api.delete("Pod", pod(api, name, leads=True))
    done = oarlock("attach", name)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in oarlock("events", "--json", name).stdout.splitlines()]
    last = said(oarlock, name, 3, "worker-0")  # kept in the state: what a deleted pod said last may be gone
    begun = re.search(r"begun at ([\d ]+)", last)
    assert begun, last
    left = [int(step) for step in begun[1].split()][1:]
    assert len(left) == 2, last
    for task in ("worker-0", "worker-1"):
        logs = [said(oarlock, name, generation, task) for generation in (2, 3)]
        assert [int(step) for log in logs for step in re.findall(r"starts at (\d+)", log)] == left, task
        assert total_of(logs[1]) == left[-1] + 40
    steps = [event for event in told if event["kind"] in ("report", "generation")]
    made = [
        (before["step"], after["generation"])
        for before, after in zip(steps, steps[1:])
        if before["kind"] == "report" and after["kind"] == "generation"
    ]
    assert all(step <= left[generation - 2] for step, generation in made), (made, left)


@only_in_soak  # test_chaos.py kills a task, too
def test_a_killed_program_goes_on_from_the_last_checkpoint_everywhere(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    name = "kept-kill"
    ended.append(name)
    start_detached(oarlock, name, written(tmp_path / "program", STEPS), "2")
    eventually(lambda: has_made(name, 50), "steps after a checkpoint")
    state = json.loads(oarlock("status", "--json", name).stdout)
    victim = next(task["pid"] for task in state["tasks"] if task["name"] == "worker-1")
    pod_exec.run(api, pod(api, name, leads=False), ["python3", "-c", f"import os; os.kill({victim}, 9)"])
    done = oarlock("attach", name)
    assert done.returncode == 0, done.stdout + done.stderr
    begun = {
        re.search(r"starts at (\d+)", said(oarlock, name, 2, task))[1]  # type: ignore[index]
        for task in ("worker-0", "worker-1")
    }
    assert len(begun) == 1
    first = int(begun.pop())
    assert first % 20 == 0
    assert total_of(said(oarlock, name, 2, "worker-0")) == first + 40
