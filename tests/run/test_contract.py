from __future__ import annotations

import json

import pytest

from oarlock.run.cluster import Task, form
from oarlock.run.contract import Gang, environment

FOLDERS = {"data": "/d", "checkpoints": "/c", "model": "/m", "logs": "/l"}


def gang(machines: list[list[str]] | None = None, **sizes: int) -> Gang:
    tasks = form(sizes)
    addresses = {task.name: f"10.0.0.{number}:{7000 + number}" for number, task in enumerate(tasks)}
    return Gang("run-abcd", 3, tasks, addresses, restarts=2, max_restarts=5, seed=9, machines=machines or [])


def variables(formed: Gang, name: str) -> dict[str, str]:
    [task] = [task for task in formed.tasks if task.name == name]
    return environment(formed, task, FOLDERS)


def test_tensorflow_finds_the_cluster_and_itself() -> None:
    found = json.loads(variables(gang(chief=1, worker=2, ps=1), "worker-1")["TF_CONFIG"])
    assert found == {
        "cluster": {
            "chief": ["10.0.0.0:7000"],
            "worker": ["10.0.0.1:7001", "10.0.0.2:7002"],
            "ps": ["10.0.0.3:7003"],
        },
        "task": {"type": "worker", "index": 1},
    }


def test_tensorflow_finds_a_master_where_the_job_calls_the_chief_so() -> None:
    formed = gang(chief=1, worker=1)
    for task, called in zip(formed.tasks, ("master", "worker")):
        found = environment(formed, task, FOLDERS, chief_name="master")
        config = json.loads(found["TF_CONFIG"])
        assert config["task"] == {"type": called, "index": 0}
        assert config["cluster"] == {"master": ["10.0.0.0:7000"], "worker": ["10.0.0.1:7001"]}
        assert found["OARLOCK_ROLE"] == task.role


def test_an_evaluator_is_never_inside_the_cluster() -> None:
    found = json.loads(variables(gang(worker=2, evaluator=1), "evaluator-0")["TF_CONFIG"])
    assert found["task"] == {"type": "evaluator", "index": 0}
    assert found["cluster"] == {"worker": ["10.0.0.0:7000", "10.0.0.1:7001"]}


def test_torch_finds_all_that_torchrun_sets() -> None:
    found = variables(gang(worker=2), "worker-1")
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "10.0.0.0",
        "MASTER_PORT": "7000",
        "TORCHELASTIC_RUN_ID": "run-abcd",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_local_ranks_count_on_each_machine() -> None:
    formed = gang(machines=[["worker-0", "worker-1"], ["worker-2", "worker-3"]], worker=4)
    found = variables(formed, "worker-3")
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert [found[name] for name in names] == ["3", "1", "2", "1", "2"]


def test_jax_finds_its_coordinator() -> None:
    found = variables(gang(worker=2), "worker-1")
    assert found["JAX_COORDINATOR_ADDRESS"] == found["OARLOCK_LEADER"] == "10.0.0.0:7000"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("2", "1")


def test_a_program_for_kubeflows_jaxjob_finds_its_variables() -> None:
    found = variables(gang(worker=2), "worker-1")
    expected = {
        "COORDINATOR_ADDRESS": "10.0.0.0",
        "COORDINATOR_PORT": "7000",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_the_older_world_finds_its_two_variables() -> None:
    found = variables(gang(worker=1, ps=1), "ps-0")
    assert found["POD_NAME"] == "ps-0"
    assert json.loads(found["CLUSTER_CONFIG"]) == {"worker": ["10.0.0.0:7000"], "ps": ["10.0.0.1:7001"]}


def test_every_task_finds_oarlocks_own_variables_and_folders() -> None:
    found = variables(gang(chief=1, worker=1), "worker-0")
    expected = {
        "OARLOCK_RUN": "run-abcd",
        "OARLOCK_ROLE": "worker",
        "OARLOCK_INDEX": "0",
        "OARLOCK_RANK": "1",
        "OARLOCK_WORLD": "2",
        "OARLOCK_GENERATION": "3",
        "OARLOCK_SEED": "9",
        "DATA_DIR": "/d",
        "CHECKPOINT_DIR": "/c",
        "MODEL_DIR": "/m",
        "LOG_DIR": "/l",
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("name", ["ps-0", "evaluator-0"])
def test_only_trainers_have_a_rank(name: str) -> None:
    found = variables(gang(worker=1, ps=1, evaluator=1), name)
    assert not {"OARLOCK_RANK", "RANK", "JAX_PROCESS_ID", "PROCESS_ID"} & set(found)
    assert found["OARLOCK_WORLD"] == "1"


def test_tasks_are_values() -> None:
    assert Task("worker", 1, 1) == form({"worker": 2})[1]
