"""From one generation to the next: what a host does in between. No process is involved."""

from __future__ import annotations

from dataclasses import replace

from oarlock.agent.protocol.wishes import (
    Clear,
    Halt,
)
from tests.support.hosted_tasks import SPEC, HostedTasks, Supply, wish_to_run


def test_a_later_generation_starts_once_the_one_before_is_swept() -> None:
    host = HostedTasks().into("running")
    host.obey(wish_to_run(2))
    host.exits(10, 11, ours=True)
    assert host.said[-1] == "sweep"
    host.said.clear()
    host.swept()
    assert host.said == ["worker-0<closed", "worker-1<closed", "launch:worker-0", "launch:worker-1"]
    assert (host.host.state.cleared, host.host.state.generation) == (1, 2)


def test_nothing_stands_by_for_a_task_that_does_not_come_back() -> None:
    host = HostedTasks().into("running")
    for task in ("worker-0", "worker-1"):
        host.writes(task, kind="gpus", gpus=[0])
    host.obey(wish_to_run(2, roles={"worker": 1}))
    host.exits(10, 11, ours=True)
    host.said.clear()
    host.swept()
    assert host.said == ["worker-0<closed", "worker-1<closed", "stand by:worker-1:", "launch:worker-0"]


def test_a_wish_that_was_overtaken_is_not_followed() -> None:
    host = HostedTasks().into("cleared")
    host.obey(wish_to_run(3))
    host.said.clear()
    host.obey(Clear(2))
    assert (host.said, host.host.wish.generation) == ([], 3)


def test_signs_of_life_are_told_and_their_absence_is_not() -> None:
    host = HostedTasks().into("running")
    host.host.start()
    told = [event["kind"] for event in host.events].count("alive")
    host.loop.passes("signs of life")
    assert [event["kind"] for event in host.events].count("alive") == told
    host.is_computing = True
    host.loop.passes("signs of life")
    host.is_computing = False
    assert [event["kind"] for event in host.events].count("alive") == told + 1
    host.lines["worker-0"].on_lines([b'{"kind": "note", "text": "here"}'])
    host.loop.passes("signs of life")
    host.loop.passes("signs of life")
    assert [event["kind"] for event in host.events].count("alive") == told + 2


def test_a_task_that_ended_starts_again_with_a_higher_launch_number() -> None:
    host = HostedTasks().into("running")
    host.exits(11)
    host.said.clear()
    for _ in range(2):
        host.obey(wish_to_run(1, launches={"worker-0": 2, "worker-1": 2}))
    assert host.said == ["worker-1<closed", "launch:worker-1"]
    assert host.host.state.tasks["worker-1"].launch == 2


def test_tasks_wait_until_the_zygote_is_ready() -> None:
    host = HostedTasks().into("importing")
    host.obey(wish_to_run())
    assert host.said == []
    host.ready()
    assert host.said == ["launch:worker-0", "launch:worker-1"]


def test_tasks_wait_for_the_checkpoint_that_they_resume_from() -> None:
    supply = Supply()
    host = HostedTasks(supply=supply).into("ready")
    host.obey(wish_to_run(checkpoints=["step-7"]))
    assert host.said == []
    supply.then("nobody answered")
    assert host.events == [{"kind": "never_ready", "text": "machine-0: nobody answered"}]
    supply.names = ["step-7"]
    supply.then(None)
    assert host.said == ["launch:worker-0", "launch:worker-1"]
    idle = HostedTasks(supply=Supply()).into("ready")
    idle.obey(wish_to_run(checkpoints=["step-7"], places={}))
    assert idle.host.state.generation == 1


def test_a_checkpoint_that_comes_too_late_starts_nothing() -> None:
    supply = Supply()
    host = HostedTasks(supply=supply).into("ready")
    host.obey(wish_to_run(checkpoints=["step-7"]))
    host.obey(Clear(1))
    host.statuses = 0
    supply.then(None)
    assert (host.said, host.statuses) == ([], 0)


def test_the_only_machine_makes_room_for_as_many_tasks_as_are_wanted() -> None:
    alone = replace(SPEC, machines=1)
    host = HostedTasks(alone).into("running")
    host.obey(Clear(1, want={"worker": 3}))
    status = host.host.status()
    assert (status.slots, len(status.ports), host.statuses) == ({"worker": 3}, 3, 1)
    host.obey(Halt(1, want={"worker": 3}))
    assert host.statuses == 1
    one_of_two = HostedTasks().into("running")
    one_of_two.obey(Halt(1, want={"worker": 3}))
    assert one_of_two.host.status().slots == {"worker": 2}


def test_each_generation_has_ports_of_its_own_and_its_tasks_have_their_ends() -> None:
    host = HostedTasks().into("ready")
    before = host.host.status().ports
    host.obey(wish_to_run())
    assert not set(before) & set(host.host.status().ports)
    assert all(line.is_handed_over for line in host.lines.values())
