"""What a program finds in its environment: one task and the gang's addresses in, variables out.

Pure; travels into pods. Everything is set for every framework, because it costs nothing and a
program that mixes two works too. Only a trainer gets a rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field

from oarlock.run.cluster import Task, is_ingest, leader, world
from oarlock.run.quick_dataclass import dataclass

NO_INPUT = "NoInput"  # the type of a task's error if its program reads input and there is none
FOLDER_VARIABLES = {
    "data": "DATA_DIR",
    "checkpoints": "CHECKPOINT_DIR",
    "eval": "EVAL_DIR",
    "model": "MODEL_DIR",
    "logs": "LOG_DIR",
    "sources": "SOURCES_DIR",  # only for an ingest
}
PREEMPTED = 143  # the exit code of a process that was asked to leave, and left: not a failure


@dataclass(frozen=True)
class Gang:
    """One generation, as every member must see it."""

    run: str
    generation: int
    tasks: tuple[Task, ...]
    addresses: Mapping[str, str]  # task name -> host:port, for this generation only
    restarts: int = 0
    max_restarts: int = 0
    seed: int | None = None
    machines: Sequence[Sequence[str]] = field(default_factory=list)  # task names, machine by machine
    checkpoints: Sequence[str] = ()  # those that it may resume from, newest first
    scored: Sequence[str] = ()  # checkpoints that already have a score
    files: str = ""  # the version of the files that the program wrote next to itself, on the leader's machine


def environment(
    gang: Gang, task: Task, folders: Mapping[str, str], observe: bool = True, chief_name: str = "chief"
) -> dict[str, str]:
    """Every variable that `task` needs. `folders`: data, checkpoints, model and logs, as this task sees them;
    `observe`: whether hooks report the progress of a program that does not; `chief_name`: the chief's name in
    TF_CONFIG."""
    if is_ingest(task.name):
        return {**_oarlock(gang, task), "OARLOCK_WORLD": "1", **_folders(folders)}
    return {
        **_oarlock(gang, task),
        "OARLOCK_OBSERVE": "1" if observe else "0",
        **_folders(folders),
        **_tensorflow(gang, task, chief_name),
        **_older_world(gang, task),
        **(_torch(gang, task) if task.is_trainer else {}),
        **(_jax(gang, task) if task.is_trainer else {}),
    }


def _oarlock(gang: Gang, task: Task) -> dict[str, str]:
    variables = {
        "OARLOCK_RUN": gang.run,
        "OARLOCK_ROLE": task.role,
        "OARLOCK_INDEX": str(task.index),
        "OARLOCK_WORLD": str(world(gang.tasks)),
        "OARLOCK_GENERATION": str(gang.generation),
        "OARLOCK_SEED": str(gang.seed or 0),
        "OARLOCK_LEADER": gang.addresses[leader(gang.tasks).name],
        "OARLOCK_CHECKPOINTS": " ".join(gang.checkpoints),
    }
    if task.role == "evaluator":
        variables["OARLOCK_SCORED"] = " ".join(gang.scored)
    if task.rank is not None:
        variables["OARLOCK_RANK"] = str(task.rank)
    return variables


def _folders(folders: Mapping[str, str]) -> dict[str, str]:
    return {FOLDER_VARIABLES[kind]: folder for kind, folder in folders.items()}


def _cluster(gang: Gang) -> dict[str, list[str]]:
    """Role -> addresses, in index order. Without evaluators: every other task would wait for them."""
    found: dict[str, list[str]] = {}
    for task in gang.tasks:
        if task.role != "evaluator":
            found.setdefault(task.role, []).append(gang.addresses[task.name])
    return found


def _tensorflow(gang: Gang, task: Task, chief_name: str) -> dict[str, str]:
    names = {"chief": chief_name}
    cluster = {names.get(role, role): addresses for role, addresses in _cluster(gang).items()}
    config = {"cluster": cluster, "task": {"type": names.get(task.role, task.role), "index": task.index}}
    return {"TF_CONFIG": json.dumps(config)}


def _older_world(gang: Gang, task: Task) -> dict[str, str]:
    return {"CLUSTER_CONFIG": json.dumps(_cluster(gang)), "POD_NAME": task.name}


def _torch(gang: Gang, task: Task) -> dict[str, str]:
    """All variables that torchrun sets. Without the last one torch would look for torchrun's own store."""
    host, port = gang.addresses[leader(gang.tasks).name].rsplit(":", 1)
    machine, local_rank, local_world = _place(gang, task)
    size = str(world(gang.tasks))
    return {
        "RANK": str(task.rank),
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
        "GROUP_RANK": str(machine),
        "GROUP_WORLD_SIZE": str(max(1, len(gang.machines))),
        "ROLE_RANK": str(task.rank),
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": gang.run,
        "TORCHELASTIC_RESTART_COUNT": str(gang.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(gang.max_restarts),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _place(gang: Gang, task: Task) -> tuple[int, int, int]:
    """(machine, rank on it, trainers on it). By default one machine holds all tasks."""
    here = trainers_beside(gang, task)
    machine = next((number for number, members in enumerate(gang.machines) if task.name in members), 0)
    return machine, here.index(task.name), len(here)


def trainers_beside(gang: Gang, task: Task) -> list[str]:
    """The trainers on a task's machine, itself included, in the order of their LOCAL_RANK."""
    names = {other.name: None for other in gang.tasks if other.is_trainer}
    for members in gang.machines:
        if task.name in members:
            return [name for name in members if name in names]
    return list(names)


def _jax(gang: Gang, task: Task) -> dict[str, str]:
    """For programs that pass these on themselves. `initialize()` without arguments needs the cluster
    environment that the runner registers (JAX reads only the address from variables). The names without a
    prefix are those of Kubeflow's JAXJob, which its published programs read."""
    address, size, rank = gang.addresses[leader(gang.tasks).name], str(world(gang.tasks)), str(task.rank)
    host, port = address.rsplit(":", 1)
    return {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "COORDINATOR_ADDRESS": host,
        "COORDINATOR_PORT": port,
        "NUM_PROCESSES": size,
        "PROCESS_ID": rank,
    }
