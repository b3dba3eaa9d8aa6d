"""The leading agent's listener when there are no descriptors left: it does not spin, and comes back."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from oarlock.agent.lead import coordinator
from oarlock.agent.lead.agents.machine_order import MachineOrder
from oarlock.agent.lead.conductor import Conductor
from oarlock.agent.lead.coordinator import Coordinator
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Program, Spec
from oarlock.agent.record.run_record import Record
from oarlock.run.run_state import RunState
from tests.support.lone_leader import LoneLeader
from tests.support.waiting import eventually


def test_without_descriptors_the_listener_is_left_alone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_PAUSE", 0.2)
    loop = Loop()
    spec = Spec(
        run="r",
        folder=str(tmp_path),
        cwd="/",
        program=Program("program", "p"),
        sizes={"worker": 1},
        folders={},
    )
    record = Record(tmp_path, RunState("r"))
    record.emit("agent", pid=1, host="h")
    machine = PhaseMachine(loop, spec, record, MachineOrder(tmp_path / "seats"), LoneLeader())
    door = Coordinator(loop, "token", "127.0.0.1", 0, Conductor(machine), lambda _: {})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection(("127.0.0.1", door.port), timeout=300) as caller:
        # Those that are open stay open; there is no number for another one.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            loop.turn()
            assert not loop.watches(door.listener)
            eventually(lambda: turned(loop).watches(door.listener), "the listener again")
            loop.turn()
            assert not loop.watches(door.listener)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: turned(loop) and door.strangers, "whoever waited")
        assert b"challenge" in caller.recv(4096)
        notes = [text for text in record.state.notes if "Too many open files" in text]
        assert len(notes) == 1
    door.close()
    os.close(record._events or 0)


def turned(loop: Loop) -> Loop:
    """The loop after one more turn."""
    loop.turn()
    return loop
