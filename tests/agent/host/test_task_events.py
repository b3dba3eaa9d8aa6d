"""What tasks say, and where a host passes it on. No process is involved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oarlock.agent.host.task_events import GPUS
from oarlock.agent.host.task_shutdown import GPU_MEMORY, OTHERS, SUPPLY
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.wishes import Clear, Fault, Finish, Made, RunTasks, Stop, Wish
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.run.cluster import form
from oarlock.run.gpu_facts.gpu_failures import Kind
from tests.support.hosted_tasks import SPEC, HostedTasks, Supply, wish_to_run


def test_a_pause_ends_by_itself() -> None:
    host = HostedTasks().into("running")
    host.obey(Fault(1, "pause", "worker-1", 5.0))
    host.loop.passes("pause of worker-1")
    assert host.said == ["SIGSTOP:11:theirs", "SIGCONT:11:theirs"]
    assert host.events == [{"kind": "note", "text": "chaos: continued worker-1"}]
    early = HostedTasks().into("running")
    early.obey(Fault(1, "pause", "worker-1", 5.0))
    early.obey(Fault(1, "continue", "worker-1"))
    assert not early.loop.expects("pause of worker-1")
    ended = HostedTasks().into("running")
    ended.obey(Fault(1, "pause", "worker-1", 5.0))
    ended.exits(11)
    ended.events.clear()
    ended.loop.passes("pause of worker-1")
    assert ended.events == []


def test_reports_are_merged_and_not_passed_on_too_often() -> None:
    host = HostedTasks().into("running")
    for step in (1, 2):
        host.writes("worker-1", kind="report", step=step)
    host.loop.clock += 0.1
    host.writes("worker-1", kind="report", step=3)
    assert [event["step"] for event in host.events] == [1, 3]


GPUS_DYING = [
    ("it has opened none", [], "worker-1", None, []),
    ("it dies by itself", [0, 1], "worker-1", None, ["open:worker-1"]),
    ("it only closes its line", [0], "worker-0", None, []),
    ("the generation restarts", [0], "worker-1", Clear(2), ["open:worker-1"]),
    ("the run is over", [0], "worker-1", Finish(1), []),
    ("the run stops", [0], "worker-1", Stop(1), []),
]


@pytest.mark.parametrize(
    ("opened", "dying", "wish", "said"), [row[1:] for row in GPUS_DYING], ids=[row[0] for row in GPUS_DYING]
)
def test_the_gpus_of_a_dying_task_are_opened_for_the_next(
    opened: list[int], dying: str, wish: Wish | None, said: list[str]
) -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="gpus", gpus=opened)
    if wish is not None:
        host.obey(wish)
    host.said.clear()
    host.dying = {dying}
    host.lines["worker-1"].on_end()
    assert host.said == said


def looked_at(host: HostedTasks, gib: int) -> list[str]:
    """What the host says to its zygote after a look at GPUs with so much free memory."""
    host.said.clear()
    host.room = gib << 30
    host.host.events.look_at_gpus()
    return list(host.said)


def on_a_gpu(opened: list[int]) -> HostedTasks:
    host = HostedTasks().into("running")
    host.figures = {"worker-1": {"gpus": ["0"]}}
    host.writes("worker-1", kind="gpus", gpus=opened)
    return host


def test_gpus_with_room_are_opened_for_the_next_while_the_task_runs() -> None:
    host = on_a_gpu([0])
    assert looked_at(host, 3) == []
    assert looked_at(host, 4) == ["open:worker-1"]
    assert looked_at(host, 2) == []
    host.dying = {"worker-1"}
    host.lines["worker-1"].on_end()  # said once more, which changes nothing
    assert host.said == ["open:worker-1"]


def test_a_task_that_needs_the_memory_gets_it_back() -> None:
    host = on_a_gpu([0])
    assert looked_at(host, 4) == ["open:worker-1"]
    assert looked_at(host, 1) == ["stand by:worker-1:0"]
    assert looked_at(host, 3) == []
    assert looked_at(host, 4) == ["open:worker-1"]


def test_a_task_that_has_no_next_is_left_alone() -> None:
    assert looked_at(on_a_gpu([]), 100) == []
    stopped = on_a_gpu([0])
    stopped.obey(Stop(1))
    assert looked_at(stopped, 100) == []


def test_after_trouble_with_a_gpu_the_next_process_starts_afresh() -> None:
    host = on_a_gpu([0])
    looked_at(host, 4)
    host.said.clear()
    host.trouble = Trouble("lost", "GPU 0 has fallen off the bus")
    host.exits(11)
    assert "stand by:worker-1:" in host.said


@pytest.mark.parametrize(("kind", "said"), [("memory", []), ("lost", ["open:worker-1"])])
def test_a_run_that_ran_out_of_memory_keeps_all_of_it_for_its_tasks(kind: Kind, said: list[str]) -> None:
    host = on_a_gpu([0])
    host.trouble = Trouble(kind, "GPU 0 failed")
    host.exits(10, 11)
    host.obey(wish_to_run(2))
    host.swept()
    host.launched()
    host.writes("worker-1", kind="gpus", gpus=[0])
    assert looked_at(host, 100) == said
    host.said.clear()
    host.host.close()
    assert host.said[0] == ("close worker-1:(0,)" if said else "close"), (
        "nor does the next run find it in use"
    )


def test_a_task_that_is_done_needs_no_next() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="gpus", gpus=[0])
    host.writes("worker-1", kind="gpus", gpus=[])
    host.dying = {"worker-1"}
    host.lines["worker-1"].on_end()
    assert host.said == ["stand by:worker-1:0", "stand by:worker-1:"]


def test_where_a_task_is_goes_into_the_status() -> None:
    host = HostedTasks().into("at gates")
    host.writes("worker-1", kind="ask", purpose="save")
    host.writes("worker-1", kind="at", loop=1, meeting=3, step=4)
    gate = host.host.status().gates["worker-1"]
    assert (gate.asks, gate.meeting, gate.step) == (1, 3, 4)
    host.exits(11)
    assert list(host.host.status().gates) == ["worker-0"]


def test_nonsense_of_a_task_costs_the_line_and_is_noted() -> None:
    host = HostedTasks().into("running")
    host.lines["worker-1"].on_lines([b"nonsense", b'{"kind":"note","text":"sense"}'])
    host.host.dropped.flush()
    texts = [event["text"] for event in host.events]
    assert texts == ["worker-1: sense", "dropped 1 message of worker-1: text that is not JSON"]


ONE, TWO = "1" * 16, "2" * 16


def test_a_task_that_waits_for_a_folder_learns_that_it_is_made() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="await", folder=ONE)
    assert host.said == []
    host.obey(Made(1, frozenset({ONE})))
    host.writes("worker-1", kind="await", folder=ONE)  # again: the line was lost
    host.writes("worker-0", kind="await", folder=TWO)
    host.obey(Made(1, frozenset({ONE, TWO})))
    assert host.said == [f"worker-1<made:{ONE}", f"worker-1<made:{ONE}", f"worker-0<made:{TWO}"]


def test_a_folder_is_made_in_one_generation_which_may_be_to_come() -> None:
    host = HostedTasks().into("ready")
    host.obey(Made(1, frozenset({ONE})))
    host.obey(wish_to_run(1))
    host.launched()
    host.writes("worker-1", kind="await", folder=ONE)
    assert f"worker-1<made:{ONE}" in host.said
    later = HostedTasks().into("running")
    later.obey(Made(2, frozenset({ONE})))
    later.writes("worker-1", kind="await", folder=ONE)
    assert later.said == []


def test_what_the_leader_task_makes_is_part_of_the_status() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="made", folder=TWO)  # which is not for it to say
    host.writes("worker-0", kind="made", folder=ONE)
    host.writes("worker-0", kind="made", folder="../x")
    assert host.host.status().made == {ONE}
    assert Status.from_data(host.host.status().to_data()).made == {ONE}


EVALUATED = {"worker": 1, "evaluator": 1}


def evaluated(supply: Supply | None = None) -> HostedTasks:
    """worker-0 has the pid 10, evaluator-0 the pid 11."""
    host = HostedTasks(replace(SPEC, sizes=EVALUATED), EVALUATED, supply)
    host.ready()
    host.obey(training())
    host.launched()
    host.said.clear()
    host.events.clear()
    return host


def training(**more: Any) -> RunTasks:
    tasks = form(EVALUATED)
    gang = replace(wish_to_run(1).gang, tasks=tasks, addresses={task.name: "h:1" for task in tasks})
    return RunTasks(gang, {"machine-0": [task.name for task in tasks]}, **more)


def test_once_the_leader_task_is_done_the_evaluator_is_asked_to_end_by_itself_and_others_are_ended() -> None:
    host = evaluated()
    host.obey(training(is_done=True))
    assert host.said == ["evaluator-0<stop", "worker-0<stop"]
    host.loop.passes(OTHERS)
    host.loop.passes(OTHERS)
    assert host.said[2:] == ["SIGTERM:10", "SIGKILL:10"]  # the evaluator has as long as it takes


def test_an_evaluator_that_dies_then_starts_again_and_knows_that_training_has_ended() -> None:
    host = evaluated()
    host.obey(training(is_done=True))
    host.exits(10, status=0)
    host.exits(11)
    host.said.clear()
    host.obey(training(is_done=True, launches={"evaluator-0": 2}))
    assert [word for word in host.said if "<stop" in word] == ["evaluator-0<stop"]
    assert [process.name for process in host.host.state.alive()] == ["evaluator-0"]


def test_a_host_that_joins_then_runs_the_evaluator_alone() -> None:
    host = HostedTasks(replace(SPEC, sizes=EVALUATED), EVALUATED)
    host.ready()
    host.obey(training(is_done=True))
    assert list(host.host.state.tasks) == ["evaluator-0"]


def test_the_evaluator_is_asked_to_end_only_when_the_last_checkpoints_are_here() -> None:
    supply = Supply()
    host = evaluated(supply)
    supply.is_complete = False
    host.obey(training(is_done=True))
    host.loop.passes(SUPPLY)
    assert "evaluator-0<stop" not in host.said
    supply.is_complete = True
    host.loop.passes(SUPPLY)
    assert host.said[-1] == "evaluator-0<stop"


def test_scores_are_part_of_the_status_and_no_other_report_is() -> None:
    host = evaluated()
    host.writes("evaluator-0", kind="follow")
    for step in (10, 20):  # at the same moment: none replaces the other
        host.writes("evaluator-0", kind="report", step=step, generation=1, accuracy=step / 100)
    host.writes("evaluator-0", kind="report", step=30, loss=1.0)
    host.writes("worker-0", kind="follow")
    host.writes("worker-0", kind="report", step=3, generation=1, loss=1.0)
    worker, evaluator = Status.from_data(host.host.status().to_data()).tasks
    assert (worker.follows, worker.scores, evaluator.follows) == (False, (), True)
    assert [(score["step"], score["accuracy"]) for score in evaluator.scores] == [(10, 0.1), (20, 0.2)]
    assert [event["step"] for event in host.events] == [30, 3]


def with_gpus() -> HostedTasks:
    host = HostedTasks()
    host.figures = {}
    return host


def test_what_gpus_say_goes_to_the_leader_as_long_as_a_task_uses_them() -> None:
    host = with_gpus().into("running")
    host.figures = {"worker-1": {"memory": 5, "memory_total": 9, "gpus": ["1"]}}
    host.loop.passes(GPUS)
    host.loop.passes(GPUS)
    told = {"kind": "gpu", "task": "worker-1", "memory": 5, "memory_total": 9, "gpus": ["1"]}
    assert host.events == [told, told]
    host.exits(11)
    host.events.clear()
    host.loop.passes(GPUS)
    assert host.events == []


def test_a_machine_without_gpus_does_not_look_again() -> None:
    host = HostedTasks().into("running")
    assert not host.loop.expects(GPUS)


def test_the_trouble_of_a_gpu_is_part_of_the_outcome() -> None:
    host = HostedTasks().into("running")
    host.trouble = Trouble("memory", "GPU 0 ran out of memory; use smaller batches")
    host.exits(10)
    first, second = Status.from_data(host.host.status().to_data()).tasks
    assert (first.trouble, first.advice) == host.trouble
    assert (second.trouble, second.advice) == (None, None)


def test_a_task_that_did_not_fail_has_no_trouble() -> None:
    host = HostedTasks().into("running")
    host.trouble = Trouble("memory", "GPU 0 ran out of memory; use smaller batches")
    host.exits(10, ours=True)
    host.exits(11, status=0)
    assert [task.trouble for task in host.host.status().tasks] == [None, None]


def test_a_generation_is_cleared_only_when_gpus_have_freed_its_memory() -> None:
    host = HostedTasks().into("sweeping")
    host.held = None  # the driver has not answered
    host.swept()
    host.held = "GPU 0 has 61.00 GiB in use"
    host.loop.clock += 1.0
    host.loop.passes(GPU_MEMORY)
    assert not host.host.is_cleared
    host.loop.clock += 1.0
    host.loop.passes(GPU_MEMORY)
    # Until the driver answers the first look counts, and after each answer a new one.
    first, second, third = host.asked
    assert first == second < third
    host.obey(wish_to_run(2))
    assert "launch:worker-0" not in host.said
    host.held = ""
    host.loop.passes(GPU_MEMORY)
    assert "launch:worker-0" in host.said
    assert not host.loop.expects(GPU_MEMORY)
    assert "note" not in [event["kind"] for event in host.events]


def test_memory_that_is_never_freed_is_said_and_does_not_stop_the_run() -> None:
    host = HostedTasks().into("sweeping")
    host.held = "GPU 0 has 61.00 GiB in use"
    host.swept()
    host.loop.clock += 5.0
    host.loop.passes(GPU_MEMORY)
    assert host.host.is_cleared
    [note] = [event["text"] for event in host.events if event["kind"] == "note"]
    assert note == ("the memory of dead tasks on GPUs is not free after 5 s: GPU 0 has 61.00 GiB in use")


def test_a_run_that_ends_does_not_wait_for_gpus() -> None:
    host = HostedTasks().into("finishing")
    host.held = "GPU 0 has 61.00 GiB in use"
    host.exits(10, 11, status=0)
    host.swept()
    assert host.host.is_cleared


def test_the_next_run_may_find_open_what_this_one_has_used() -> None:
    host = on_a_gpu([0])
    host.writes("worker-0", kind="gpus", gpus=[])  # has used none
    looked_at(host, 4)
    host.writes("worker-1", kind="gpus", gpus=[])  # is done
    host.said.clear()
    host.host.close()
    assert host.said[0] == "close worker-1:(0,)"


def test_that_is_said_once_and_only_if_it_is_so() -> None:
    host = HostedTasks().into("running")
    for room in (3, 4, 5):
        host.room = room << 30
        host.writes("worker-1", kind="gpus", gpus=[0])
    notes = [event["text"] for event in host.events if event["kind"] == "note"]
    assert notes == ["process 99 will also keep the GPUs open, with about 0.5 GiB of the memory of each"]


def fails(host: HostedTasks, kind: Kind) -> None:
    host.trouble = Trouble(kind, "GPU 0 failed")
    host.exits(11)


NOT_KEPT: dict[str, Callable[[HostedTasks], object]] = {
    "their memory is in use": lambda host: looked_at(host, 3),
    "it ran out": lambda host: fails(host, "memory"),
    "they are in trouble": lambda host: fails(host, "lost"),
    "its imports do not stay": lambda host: setattr(host.zygote, "keeps_gpus", False),
}


@pytest.mark.parametrize("why", NOT_KEPT)
def test_the_next_run_finds_them_closed_if(why: str) -> None:
    host = on_a_gpu([0])
    looked_at(host, 4)
    NOT_KEPT[why](host)
    host.said.clear()
    host.host.close()
    assert host.said[0] == "close"
