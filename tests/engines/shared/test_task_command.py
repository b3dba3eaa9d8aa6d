from __future__ import annotations

from dataclasses import replace

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.engines.shared import task_command
from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.run.run_state import RunState, fold

TASKS = ["worker-0", "worker-1"]
SPEC = Spec("r", "/f", "/c", Program("program", "train.py"), {"worker": 2}, {})
GPUS = {"worker-0": ["2"], "worker-1": ["5"]}


def running() -> RunState:
    started = [{"t": 2, "kind": "task", "task": name, "state": "started", "pid": 7} for name in TASKS]
    formed = [
        {"t": 1, "kind": "run", "job": "j", "engine": "local", "tasks": TASKS},
        {"t": 1, "kind": "generation", "generation": 1, "tasks": TASKS},
    ]
    return fold("r", [*formed, *started])


def variables(spec: Spec) -> dict[str, str]:
    order = task_command.as_task(running(), spec, "worker-1", ["true"], "/f/agent.json", print)
    env: dict[str, str] = order["env"]
    return env


def test_a_command_beside_a_task_sees_the_tasks_gpus() -> None:
    env = variables(replace(SPEC, gpus=Gpus(GPUS)))
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"]) == ("5", "1")
    env = variables(replace(SPEC, gpus=Gpus(GPUS, by_local_rank=True)))
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"]) == ("2,5", "1")


def test_which_of_several_machines_a_task_is_on_is_not_known() -> None:
    assert "LOCAL_RANK" not in variables(replace(SPEC, machines=2))
