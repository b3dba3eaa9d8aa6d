"""How a host ends its tasks, and what is left of them. No process is involved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock.agent.protocol.gates import MeetAt
from oarlock.agent.protocol.wishes import (
    Clear,
    Finish,
    Stop,
    ToGates,
)
from tests.support.hosted_tasks import PREEMPTED, SPEC, HostedTasks, halts, wish_to_run


def test_a_task_that_is_forked_while_it_should_end_is_ended() -> None:
    killed = HostedTasks().into("forking")
    killed.obey(Clear(1))
    killed.launched()
    assert killed.said == ["SIGKILL:10", "SIGKILL:11"]
    stopped = HostedTasks().into("forking")
    stopped.obey(Stop(1))
    stopped.launched()
    assert stopped.said[-2:] == ["SIGKILL:10", "SIGKILL:11"]


def served() -> HostedTasks:
    roles = {"chief": 1, "ps": 1}
    host = HostedTasks(replace(SPEC, sizes=roles), roles).into("ready")
    host.obey(wish_to_run(roles=roles))
    return host


def test_parameter_servers_are_stopped_when_the_leader_task_is_done() -> None:
    host = served()
    host.launched()
    host.said.clear()
    host.obey(Finish(1))
    assert host.said == ["chief-0<stop", "ps-0<stop", "SIGTERM:11"]
    assert host.loop.deadlines["grace"][0] == 3.0
    host.obey(Stop(1))
    assert host.said[3:] == ["chief-0<stop", "ps-0<stop", "SIGTERM:10"], "never a second SIGTERM"
    late = served()
    late.obey(Finish(1))
    late.launched()
    assert late.said[-1] == "SIGTERM:11"
    alone = HostedTasks().into("finishing")
    assert alone.loop.deadlines["grace"][0] == 30.0


@pytest.mark.parametrize(("wish", "grace"), [(Stop(1, 7.0), 7.0), (Stop(1), 30.0), (Finish(1), 30.0)])
def test_a_stop_has_its_own_grace_or_that_of_the_job(wish: Stop | Finish, grace: float) -> None:
    host = HostedTasks().into("running")
    host.obey(wish)
    if isinstance(wish, Finish):
        host.loop.passes("grace")
    assert host.loop.deadlines["grace"][0] == grace


def test_no_deadline_is_left_when_all_tasks_have_ended() -> None:
    for state in ("stopping", "showing stacks"):
        host = HostedTasks().into(state)
        host.exits(10, 11)
        assert not {"grace", "stacks"} & set(host.loop.deadlines)
    cleared = HostedTasks().into("stopping")
    cleared.obey(Clear(1))
    assert "grace" not in cleared.loop.deadlines


def test_what_ends_at_its_gate_or_by_the_host_is_no_failure() -> None:
    host = HostedTasks().into("at gates")
    halts(host)
    assert [(task.ours, task.failed_at, task.code) for task in host.host.status().tasks] == [
        (True, None, 143)
    ] * 2
    other = HostedTasks().into("at gates")
    other.obey(ToGates(1, MeetAt(1, "save", 7)))
    other.exits(10, status=PREEMPTED)
    other.exits(11, status=9, ours=True)
    assert [task.ours for task in other.host.status().tasks] == [False, True]
    assert [task.failed_at is None for task in other.host.status().tasks] == [False, True]


def test_a_task_that_the_kernel_killed_for_memory_is_known() -> None:
    host = HostedTasks().into("running")
    host.kills = 1
    host.exits(10, status=9)
    host.exits(11, status=9)
    assert [task.starved for task in host.host.status().tasks] == [True, False]


def test_a_task_that_reported_its_error_is_killed_if_it_does_not_end() -> None:
    host = HostedTasks().into("running")
    host.writes("worker-1", kind="error", type="E", message="m", where="w")
    host.loop.passes("last words of worker-1")
    assert host.said == ["SIGKILL:11:theirs"]
    host.exits(11, status=9)
    assert host.host.status().tasks[1].error == {"type": "E", "message": "m", "where": "w"}
    ended = HostedTasks().into("running")
    ended.writes("worker-1", kind="error", type="E")
    ended.exits(11)
    assert not ended.loop.expects("last words of worker-1")


def test_the_last_words_of_a_task_are_read_before_its_end_is_told() -> None:
    host = HostedTasks().into("running")
    host.lines["worker-1"].unread = [b'{"kind":"report","step":9}']
    host.exits(11)
    kinds = [event["kind"] for event in host.events]
    assert kinds == ["report", "report", "task"]
    assert (host.events[1]["step"], host.events[1]["last"]) == (9, True)
