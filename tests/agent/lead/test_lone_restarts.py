"""Tasks that restart alone, beside others that train on. No process is involved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock.agent.protocol.gates import Whereabouts
from oarlock.agent.protocol.outcome import Outcome
from tests.support.conducted import SPEC, Conducted
from tests.support.conducted_messages import fields

SERVED = replace(
    SPEC,
    sizes={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    machines=1,
    limits=replace(SPEC.limits, restarts=1),
)
SLOTS = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}


def served() -> Conducted:
    run = Conducted(SERVED)
    run.join("machine-0")
    run.status("machine-0", ports=(1, 2, 3, 4), slots=SLOTS)
    for task in ("chief-0", "worker-0", "ps-0", "evaluator-0"):
        run.outcome("machine-0", task, None)
    run.sent.clear()
    run.journal.events.clear()
    return run


def test_a_worker_beside_parameter_servers_restarts_alone() -> None:
    run = served()
    run.leader.checkpoints.held = ["step-1"]
    run.outcome("machine-0", "worker-0", 1, signal=9)
    assert run.summary() == "running | 0:run,1,launches={'worker-0': 2} | restart:0:True"
    run.outcome("machine-0", "worker-0", 1, signal=9)  # the same one, told again
    assert run.summary() == "running | 0:run,1,launches={'worker-0': 2} | restart:0:True"
    run.outcome("machine-0", "worker-0", 1, signal=9, launch=2)
    assert (run.phase, run.sent[-1]) == ("clearing", "0:clear,1,want=1")
    run.status("machine-0", cleared=1)
    assert fields(run, "end")["refusal"] == (
        "worker-0 restarts alone, with a budget of its own: limits.restarts is 1, and it is used up"
    )


def test_progress_before_its_last_restart_does_not_fill_the_budget_of_a_task() -> None:
    run = served()
    run.event("machine-0", "report", task="chief-0", step=3)
    run.outcome("machine-0", "chief-0", 1, error={"type": "ValueError", "message": "no"})
    assert run.phase == "running"
    run.outcome("machine-0", "chief-0", 1, error={"type": "ValueError", "message": "no"}, launch=2)
    assert run.phase == "clearing", "it failed twice in the same way without a step in between"


def test_training_continues_without_an_evaluator_that_keeps_failing() -> None:
    run = served()
    run.outcome("machine-0", "evaluator-0", 1, signal=9)
    run.outcome("machine-0", "evaluator-0", 1, signal=9, launch=2)
    assert run.phase == "running"
    assert fields(run, "note")["text"] == (
        "evaluator-0 is not restarted: limits.restarts is 1, and it is used up; training continues without it"
    )


def test_a_lost_parameter_server_restarts_the_gang() -> None:
    run = served()
    run.outcome("machine-0", "ps-0", 1, signal=9)
    assert run.phase == "clearing"


def test_beside_parameter_servers_the_leader_halts_and_nobody_waits_for_the_others() -> None:
    run = served()
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", gates=gates)
    run.conductor.on_user_stop()
    assert run.phase == "halting"
    for task in ("ps-0", "worker-0"):
        run.status("machine-0", tasks=(Outcome(task, code=1, failed_at=1.0),), gates=gates)
        assert run.phase == "halting"
    run.status("machine-0", tasks=(Outcome("chief-0", code=143, ours=True),), gates={})
    assert run.phase == "stopping"


def test_beside_parameter_servers_a_lost_machine_of_workers_costs_no_step() -> None:
    run = Conducted(replace(SERVED, sizes={"chief": 1, "worker": 2, "ps": 1}, machines=2))
    run.join("machine-0")
    run.join("machine-1")
    run.status("machine-0", ports=(1, 2, 3), slots={"chief": 1, "worker": 1, "ps": 1})
    run.status("machine-1", ports=(4,), slots={"worker": 1})
    assert run.machine.generation.tasks_on("machine-1") == ["worker-1"]
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", generation=1, gates=gates, tasks=(Outcome("chief-0"), Outcome("ps-0")))
    run.conductor.leave(run.agents["machine-1"], "closed")
    run.loop.passes("loss of machine-1")
    assert run.phase == "halting"
    run.status("machine-0", gates={}, tasks=(Outcome("chief-0", code=143, ours=True),))
    assert run.phase == "clearing"
    assert (run.machine.generation.blame or "").startswith("lost contact with machine-1")


@pytest.mark.parametrize(
    ("task", "phase"), [("chief-0", "stopping"), ("worker-0", "halting"), ("evaluator-0", "halting")]
)
def test_a_leader_that_restarted_alone_has_no_gate_until_it_says_so(task: str, phase: str) -> None:
    run = served()
    gates = {"chief-0": Whereabouts(1)}
    run.status("machine-0", gates=gates)
    gates.pop(task, None)
    run.status("machine-0", tasks=(Outcome(task, code=137, signal=9, failed_at=1.0),), gates=gates)
    run.conductor.on_user_stop()
    assert run.phase == phase
