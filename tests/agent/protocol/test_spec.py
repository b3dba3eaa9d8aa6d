from __future__ import annotations

from dataclasses import replace

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.run.gpu_facts.gpu_view import Gpus

PLAIN = Spec(
    "a", "/f", "/c", Program("program", "train.py"), {"worker": 6, "ps": 1}, {}, processes={"worker": 2}
)
UNEQUAL = replace(PLAIN, sizes={"worker": 12, "ps": 1}, processes={}, members={"worker": [1, 8, 3]})


def test_members_with_different_numbers_of_processes() -> None:
    assert [UNEQUAL.seat_of("worker", index).slots for index in range(3)] == [
        {"worker": 1},
        {"worker": 8},
        {"worker": 3},
    ]
    assert [UNEQUAL.members_of("worker", index + 1) - 1 for index in range(12)] == [0, *[1] * 8, *[2] * 3]
    assert [UNEQUAL.tasks_of("worker", count) for count in range(4)] == [0, 1, 9, 12]
    assert UNEQUAL.members_of("ps", 1) == 1
    halves = replace(UNEQUAL, machines=2)
    assert [halves.slots_of(machine) for machine in range(2)] == [{"ps": 1, "worker": 9}, {"worker": 3}]
    assert UNEQUAL.refuses_workers(3) is None
    assert UNEQUAL.refuses_workers(2) == (
        "it can have 3 to 3 workers: its machines have different numbers of processes"
    )


def test_members_that_are_equal() -> None:
    assert PLAIN.seat_of("worker", 2).slots == {"worker": 2}
    assert [PLAIN.members_of("worker", index + 1) - 1 for index in range(6)] == [0, 0, 1, 1, 2, 2]
    assert PLAIN.tasks_of("worker", 2) == 4
    assert [replace(PLAIN, machines=4).slots_of(machine)["worker"] for machine in range(4)] == [2, 2, 1, 1]


def test_a_run_gets_no_more_workers_than_it_was_given_gpus_for() -> None:
    assert PLAIN.refuses_workers(4) is None
    spec = replace(PLAIN, gpus=Gpus({f"worker-{index}": [str(index)] for index in range(6)}))
    assert spec.refuses_workers(2) is None
    assert spec.refuses_workers(4) == "it can have 1 to 3 workers: it was given GPUs for no more"
