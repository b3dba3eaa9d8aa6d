"""Checkpoints on a cluster: the leader alone has the volume, and every pod goes on from the same step."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from kubernetes.driving import stepped, written
from waiting import eventually

from oarlock.engines.kubernetes import exec
from oarlock.engines.kubernetes.api import Api
from oarlock.engines.kubernetes.labels import LEAD, selecting

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("--set", "roles.worker.cpu=100m", "--set", "roles.worker.memory=200Mi")
STEPS = """
import sys, time, oarlock
state = oarlock.State(sum=0, begun=[], large=[0.0] * 100_000)
state.begun = [*state.begun, state.step]
print("starts at", state.step, "with", state.sum)
for step in state.steps(int(sys.argv[1]), save=20):
    print("step", step)
    state.sum += step
    time.sleep(0.05)
print("ends with", state.sum, "begun at", *state.begun)
"""


def start(oarlock: Command, name: str, program: Path, steps: int) -> None:
    words = ("run", "--on", "kubernetes", "-d", "--name", name, "-n", "2", *SMALL)
    done = oarlock(*words, str(program), str(steps))
    assert done.returncode == 0, done.stderr


def runs_in(oarlock: Command, name: str, generation: int, after: int = 0) -> bool:
    state = json.loads(oarlock("status", "--json", name).stdout)
    return state["generation"] >= generation and all(
        task["state"] == "running" and (task["step"] or 0) > after for task in state["tasks"]
    )


def steps_in(oarlock: Command, name: str, generation: int) -> bool:
    """Whether both have made one."""
    return len(stepped(oarlock("events", "--json", name).stdout, generation)) == 2


def pod(api: Api, name: str, leads: bool) -> str:
    which = f"{LEAD}=true" if leads else f"!{LEAD}"
    return str(api.all("Pod", f"{selecting(name)},{which}")[0]["metadata"]["name"])


def said(oarlock: Command, name: str, generation: int, task: str) -> str:
    return oarlock("logs", "--generation", str(generation), "--task", task, name).stdout


def test_a_pod_that_is_deleted_costs_no_step(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    """Its gang leaves before the same step, saved by the leader, and goes on there: the worker's new pod
    has an empty disk, and the leader's new pod the volume."""
    name = "kept-pods"
    ended.append(name)
    start(oarlock, name, written(tmp_path / "program", STEPS), steps=240)
    eventually(lambda: runs_in(oarlock, name, 1, after=5), "the first steps")
    api.delete("Pod", pod(api, name, leads=False))
    eventually(lambda: steps_in(oarlock, name, 2), "steps after a worker was deleted")
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
        assert f"ends with {sum(range(240))}" in logs[1]
    steps = [event for event in told if event["kind"] in ("report", "generation")]
    made = [
        (before["step"], after["generation"])
        for before, after in zip(steps, steps[1:])
        if before["kind"] == "report" and after["kind"] == "generation"
    ]
    assert all(step <= left[generation - 2] for step, generation in made), (made, left)


def test_a_killed_program_goes_on_from_the_last_checkpoint_everywhere(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    name = "kept-kill"
    ended.append(name)
    start(oarlock, name, written(tmp_path / "program", STEPS), steps=120)
    eventually(lambda: runs_in(oarlock, name, 1, after=50), "steps after a checkpoint")
    state = json.loads(oarlock("status", "--json", name).stdout)
    victim = next(task["pid"] for task in state["tasks"] if task["name"] == "worker-1")
    exec.run(api, pod(api, name, leads=False), ["python3", "-c", f"import os; os.kill({victim}, 9)"])
    done = oarlock("attach", name)
    assert done.returncode == 0, done.stdout + done.stderr
    begun = {
        re.search(r"starts at (\d+)", said(oarlock, name, 2, task))[1]  # type: ignore[index]
        for task in ("worker-0", "worker-1")
    }
    assert len(begun) == 1
    assert int(begun.pop()) % 20 == 0
    assert f"ends with {sum(range(120))}" in said(oarlock, name, 2, "worker-0")
