from __future__ import annotations

from oarlock.run.cluster import form
from oarlock.run.contract import Gang, environment
from oarlock.run.gpu_facts.gpu_view import Gpus

TASKS = form({"worker": 3, "ps": 1, "evaluator": 1})
GANG = Gang(
    "run-abcd",
    1,
    TASKS,
    {task.name: "127.0.0.1:1" for task in TASKS},
    machines=[["worker-0", "ps-0", "evaluator-0"], ["worker-1", "worker-2"]],
)
GIVEN: dict[str, list[str]] = {
    "worker-0": ["3"],
    "worker-1": ["0"],
    "worker-2": ["2"],
    "evaluator-0": ["1"],
    "ps-0": [],
}


def seen(gpus: Gpus) -> dict[str, str | None]:
    return {task.name: gpus.variables(GANG, task).get("CUDA_VISIBLE_DEVICES") for task in TASKS}


def test_each_task_sees_its_own_and_a_server_none() -> None:
    found = seen(Gpus(GIVEN))
    assert found == {"worker-0": "3", "worker-1": "0", "worker-2": "2", "evaluator-0": "1", "ps-0": ""}
    assert set(seen(Gpus()).values()) == {None}


def test_the_local_rank_is_the_number_of_a_trainers_gpu_among_those_of_its_machine() -> None:
    found = seen(Gpus(GIVEN, by_local_rank=True))
    assert found == {"worker-0": "3", "worker-1": "0,2", "worker-2": "0,2", "evaluator-0": "1", "ps-0": ""}
    for task in TASKS[:3]:
        rank = int(environment(GANG, task, {})["LOCAL_RANK"])
        assert [str(found[task.name]).split(",")[rank]] == GIVEN[task.name]


def test_numbers_are_those_of_nvidia_smi() -> None:
    assert Gpus(GIVEN, by_bus=True).variables(GANG, TASKS[0]) == {
        "CUDA_VISIBLE_DEVICES": "3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_hip_counts_within_what_rocr_leaves() -> None:
    gpus = Gpus({"worker-0": ["2", "3"], "worker-1": []}, make="amd")
    assert gpus.variables(GANG, TASKS[0]) == {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "0,1"}
    hidden = gpus.variables(GANG, TASKS[1])
    assert hidden["ROCR_VISIBLE_DEVICES"] == hidden["HIP_VISIBLE_DEVICES"] == ""
