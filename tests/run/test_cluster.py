from __future__ import annotations

from oarlock.run.cluster import Task, form, in_step, leader, restarts_with, world


def names(tasks: tuple[Task, ...]) -> list[str]:
    return [task.name for task in tasks]


def test_trainers_are_ranked_chief_first() -> None:
    tasks = form({"worker": 2, "ps": 1, "chief": 1, "evaluator": 1})
    assert [(task.name, task.rank) for task in tasks] == [
        ("chief-0", 0),
        ("worker-0", 1),
        ("worker-1", 2),
        ("ps-0", None),
        ("evaluator-0", None),
    ]
    assert world(tasks) == 3


def test_worker_0_leads_where_there_is_no_chief() -> None:
    assert leader(form({"worker": 3})).name == "worker-0"
    assert leader(form({"worker": 3, "chief": 1})).name == "chief-0"


def test_a_collective_restarts_together_without_the_evaluator() -> None:
    tasks = form({"worker": 2, "evaluator": 1})
    assert names(restarts_with(tasks[1], tasks)) == ["worker-0", "worker-1"]


def test_an_evaluator_restarts_alone() -> None:
    tasks = form({"worker": 2, "evaluator": 1})
    assert names(restarts_with(tasks[2], tasks)) == ["evaluator-0"]


def test_with_parameter_servers_only_a_lost_server_restarts_everybody() -> None:
    tasks = form({"chief": 1, "worker": 2, "ps": 1})
    chief, worker, _, server = tasks
    assert names(restarts_with(worker, tasks)) == ["worker-0"]
    assert names(restarts_with(chief, tasks)) == ["chief-0"]
    assert names(restarts_with(server, tasks)) == ["chief-0", "worker-0", "worker-1", "ps-0"]


def test_with_parameter_servers_only_the_leader_has_steps_of_its_own() -> None:
    assert names(in_step(form({"chief": 1, "worker": 2, "evaluator": 1}))) == [
        "chief-0",
        "worker-0",
        "worker-1",
    ]
    assert names(in_step(form({"chief": 1, "worker": 2, "ps": 1}))) == ["chief-0"]
    assert names(in_step(form({"worker": 2, "ps": 1}))) == ["worker-0"]
