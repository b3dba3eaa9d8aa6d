"""Processes that cannot be made, and a zygote that dies. No process is involved."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock.agent.protocol.wishes import (
    Clear,
    Stop,
)
from oarlock.agent.zygote.orders import NotLaunched, Ready
from tests.support.hosted_tasks import HostedTasks, wish_to_run


def test_a_fork_that_was_refused_is_tried_again_and_said_once() -> None:
    host = HostedTasks().into("forking")
    host.not_launched()
    host.host.on_reply(NotLaunched("worker-1", 11))
    host.loop.passes("start of worker-0")
    assert host.said == ["worker-0<closed", "launch:worker-0"]
    host.loop.passes("start of worker-0")  # an older one
    assert host.said == ["worker-0<closed", "launch:worker-0"]


def test_a_fork_that_is_refused_for_too_long_is_that_tasks_failure() -> None:
    host = HostedTasks().into("forking")
    host.loop.clock += 301
    host.not_launched()
    task = host.host.status().tasks[0]
    assert (task.code, task.ours, (task.error or {})["type"]) == (71, False, "OSError")
    assert [event["kind"] for event in host.events] == ["error", "task"]
    assert host.statuses == 1


@pytest.mark.parametrize("wish", [Clear(1), Stop(1), wish_to_run(2)])
def test_a_fork_that_was_refused_is_not_tried_again_for_a_gang_that_ends(wish: Any) -> None:
    host = HostedTasks().into("forking")
    host.not_launched()
    host.host.on_reply(NotLaunched("worker-1", 11))
    host.obey(wish)
    for name in ("worker-0", "worker-1"):
        host.loop.passes(f"start of {name}")
    assert "sweep" in host.said
    assert [task.ours for task in host.host.status().tasks] == [True, True]


def test_a_zygote_that_dies_while_it_imports_is_followed_by_one_that_does_not() -> None:
    host = HostedTasks().into("importing")
    host.host.on_zygote_lost()
    assert host.events[0]["text"] == "importing torch ended the process (exit code 1)"
    assert not host.zygote.warm
    host.host.on_zygote_lost()
    assert host.events[-1]["text"] == "the task launcher (zygote) died (exit code 1); starting another"


def test_zygotes_that_die_as_they_start_are_not_replaced_forever() -> None:
    host = HostedTasks().into("importing")
    for _ in range(4):
        host.host.on_zygote_lost()
    text = f"{host.host.name}: the task launcher (zygote) dies as it starts (exit code 1)"
    assert host.events[-1] == {"kind": "never_ready", "text": text}
    assert not host.loop.expects("zygote")


def test_what_the_zygote_imported_is_told() -> None:
    host = HostedTasks().into("importing")
    host.zygote.keeper = 5
    host.host.on_reply(Ready(warm=False, why="threads", modules=["torch"]))
    assert host.events == [
        {"kind": "ready", "why": "threads", "modules": ["torch"], "keeper": 5},
        {"kind": "note", "text": "tasks are spawned, not forked: threads"},
    ]
    assert not host.loop.expects("zygote")


def test_a_machine_that_leaves_takes_no_more_tasks() -> None:
    host = HostedTasks().into("ready")
    assert host.host.status().ready
    host.host.leave()
    status = host.host.status()
    assert (status.ready, status.leaving, host.host.is_leaving) == (False, True, True)


def test_closing_closes_every_line() -> None:
    host = HostedTasks().into("running")
    assert (host.host.is_busy, host.host.is_cleared) == (True, False)
    host.host.close()
    assert host.said == ["close", "worker-0<closed", "worker-1<closed"]
