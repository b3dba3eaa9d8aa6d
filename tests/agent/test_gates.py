"""All trainers of a gang leave, or save, before the same step, when they have a gate."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.agent.net import control
from oarlock.engines.local import local_engine
from tests.support import soaking
from tests.support.gangs import Gang
from tests.support.gates import IN_STEP, did, until_done

Start = Callable[..., Gang]
FOREVER = 10**9
GRACE = 2  # seconds
EVER = {"grace": "1h"}  # no test waits for that


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ranks write what they did."""
    found = tmp_path / "done"
    found.mkdir()
    monkeypatch.setenv("OARLOCK_TEST_FOLDER", str(found))
    return found


def halted_at(folder: Path, generation: int, world: int) -> int:
    """The step before which all of them left; every step before that was done by all, once."""
    halts = [did(folder, "halt", generation, rank) for rank in range(world)]
    assert halts == [halts[0]] * world
    assert len(halts[0]) == 1, (halts, [did(folder, "step", generation, rank)[-3:] for rank in range(world)])
    [step] = halts[0]
    steps = [did(folder, "step", generation, rank) for rank in range(world)]
    assert steps == [list(range(steps[0][0], step))] * world
    return step


def test_a_stop_ends_all_ranks_before_the_same_step(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + f"train({FOREVER})", roles={"worker": 3})
    until_done(gang, folder, 20)
    local_engine.stop(gang.run)
    state = gang.end()
    assert (state.state, state.code, state.reason) == ("stopped", 130, "stopped by the user")
    assert halted_at(folder, 1, 3) == int((folder / "kept").read_text())
    assert {task.state for task in state.tasks.values()} == {"killed"}
    kinds = {event["kind"] for event in gang.events}
    assert kinds <= {"run", "agent", "ready", "generation", "task", "report", "stop", "end"}


def test_whenever_it_is_stopped_no_step_is_done_by_some_only(start: Start, folder: Path) -> None:
    """Stopped at random moments and gone on with, each time from the step at which it was stopped. Steps are
    shorter than it takes to agree on one."""
    moments = random.Random(1)
    gang = start(IN_STEP + f"train({FOREVER}, pause=lambda: random.random() * 0.0005)", roles={"worker": 3})
    begins = 0
    for generation in range(1, 2 + soaking.moments(8)):
        until_done(gang, folder, 2 + moments.randrange(10), generation, rank=moments.randrange(3))
        time.sleep(moments.random() * 0.01)
        local_engine.stop(gang.run)
        assert gang.end().state == "stopped", gang.told()
        ends = halted_at(folder, generation, 3)
        assert did(folder, "step", generation, 0)[0] == begins
        begins = ends
        local_engine.resume(gang.run)
    local_engine.stop(gang.run, now=True)


def test_a_scale_loses_no_step(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + f"train({FOREVER})", roles={"worker": 2})
    sizes = [2, 3, 2, 4, 1, 3]
    for generation, workers in enumerate(sizes[1:], start=1):
        until_done(gang, folder, 5, generation)
        assert control.ask(gang.run.path, {"ask": "scale", "workers": workers})["ok"]
    until_done(gang, folder, 5, len(sizes))
    local_engine.stop(gang.run)
    state = gang.end()
    assert (state.state, state.generation, state.restarts) == ("stopped", len(sizes), 0), gang.told()
    ends = [halted_at(folder, generation, workers) for generation, workers in enumerate(sizes, start=1)]
    begins = [did(folder, "step", generation, 0)[0] for generation in range(1, len(sizes) + 1)]
    assert begins == [0, *ends[:-1]]
    reasons = [(event["reason"], event["forgiven"]) for event in gang.of("restart")]
    assert reasons == [(f"scaled to {n} worker{'s' if n > 1 else ''}", True) for n in sizes[1:]]


@pytest.mark.parametrize("machines", [1, 2])
def test_a_save_is_before_the_same_step_on_all_ranks(start: Start, folder: Path, machines: int) -> None:
    """Though rank 3 takes five times as long for a step as the others."""
    program = IN_STEP + "train(300, pause=lambda: 0.005 if me.rank == 3 else 0.001, saves=20)"
    gang = start(program, roles={"worker": 4}, machines=machines)
    assert gang.end().state == "succeeded", gang.told()
    saves = [did(folder, "save", 1, rank) for rank in range(4)]
    assert saves == [saves[0]] * 4
    assert len(saves[0]) >= 2
    assert [did(folder, "step", 1, rank) for rank in range(4)] == [list(range(300))] * 4
    assert not gang.of("note")


def test_a_machine_that_has_to_leave_costs_no_step(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + f"train({FOREVER})", roles={"worker": 4}, machines=2)
    until_done(gang, folder, 10, rank=3)
    zygote = _parent(gang.pid("worker-3"))
    os.kill(_parent(zygote), signal.SIGTERM)
    until_done(gang, folder, 5, generation=2)
    local_engine.stop(gang.run)
    state = gang.end()
    assert (state.state, state.restarts) == ("stopped", 0), gang.told()
    assert did(folder, "step", 2, 0)[0] == halted_at(folder, 1, 4)
    halted_at(folder, 2, 4)
    [restart] = gang.of("restart")
    assert (restart["reason"], restart["forgiven"]) == ("machine-1 left: it was asked to leave", True)
    assert [event["text"] for event in gang.of("note")] == ["agent machine-1 ended with 143"]


def test_the_leading_machine_asked_to_leave_halts_the_gang(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + f"train({FOREVER})", roles={"worker": 2}, machines=2)
    until_done(gang, folder, 10)
    assert gang.state.agent is not None
    os.kill(gang.state.agent, signal.SIGTERM)
    state = gang.end()
    assert (state.state, state.code) == ("stopped", 143), gang.told()
    halted_at(folder, 1, 2)


def test_the_runtime_limit_ends_at_a_step(start: Start, folder: Path) -> None:
    for seconds in (1, 4, 16, 40):  # the limit counts from the run's start, which may take a while
        gang = start(IN_STEP + f"train({FOREVER})", limits={"runtime": f"{seconds}s"})
        state = gang.end()
        assert (state.state, state.code) == ("failed", 124)
        stop = next(number for number, event in enumerate(gang.events) if event["kind"] == "stop")
        if {event["task"] for event in gang.events[:stop] if event["kind"] == "report"} == set(state.tasks):
            break
        for path in folder.iterdir():
            path.unlink()
    halted_at(folder, 1, 2)


def test_a_rank_that_hangs_is_waited_for_no_longer_than_the_grace(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + f"train({FOREVER})", limits={"grace": f"{GRACE}s"})
    until_done(gang, folder, 5)
    gang.kill("worker-1", signal.SIGSTOP)
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped"
    [asked], [ended] = gang.of("stop"), gang.of("end")
    assert ended["t"] - asked["t"] > GRACE - 0.1, "it had its grace"


def test_a_rank_that_never_gets_to_the_gate_is_waited_for_no_longer_than_the_grace(
    start: Start, folder: Path
) -> None:
    program = IN_STEP + f"train({FOREVER}, pause=lambda: time.sleep(1000) if len(others) and me.rank else 0)"
    gang = start(program, limits={"grace": f"{GRACE}s"})
    until_done(gang, folder, 1)
    began = time.time()
    assert control.ask(gang.run.path, {"ask": "scale", "workers": 1})["ok"]
    gang.until(lambda gang: gang.state.generation == 2, "the next generation")
    [_, formed] = gang.of("generation")
    assert formed["t"] - began > GRACE - 0.1, "it had its grace"
    local_engine.stop(gang.run, now=True)


def test_a_second_stop_kills_those_who_halt(start: Start, folder: Path) -> None:
    program = f"left = [0.001] * 19\ntrain({FOREVER}, pause=lambda: left.pop() if left else 1000)"
    gang = start(IN_STEP + program, limits=EVER)
    until_done(gang, folder, 19)
    local_engine.stop(gang.run)
    gang.until(lambda gang: gang.of("stop"), "stop")
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped"


def test_a_rank_that_fails_while_it_halts_is_not_waited_for(start: Start, folder: Path) -> None:
    program = """
class Failing(Gate):
    def enter(self, step):
        due = super().enter(step)
        if due:
            os._exit(5) if me.rank == 1 else time.sleep(1000)  # as in a collective save
        return due
train(10**9, gate=Failing(first))
"""
    gang = start(IN_STEP + program, limits=EVER)
    until_done(gang, folder, 5)
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped", gang.told()


def test_a_loop_that_ends_before_the_step_that_was_agreed_on_is_not_waited_for(
    start: Start, folder: Path
) -> None:
    """It is asked to halt in its last step, and no step is left at which it could."""
    program = """
steps = []
def pause():
    steps.append(1)
    if len(steps) == 5:
        (folder / "last").touch()
        return 0.3
    return 0.01
train(5, pause)
"""
    gang = start(IN_STEP + program, limits=EVER)
    gang.until(lambda _: (folder / "last").exists(), "the last step")
    local_engine.stop(gang.run)
    state = gang.end()
    assert state.state in ("succeeded", "stopped"), gang.told()  # whichever is first: its end, or the signal
    assert (folder / "kept").read_text() == "5"
    assert not did(folder, "halt", 1, 0)
    assert [did(folder, "step", 1, rank) for rank in range(2)] == [[0, 1, 2, 3, 4]] * 2


def test_they_halt_in_a_later_loop_too(start: Start, folder: Path) -> None:
    program = IN_STEP + f"Gate(0).leave()\ngate = Gate(0)\ngate.enter(7)\ntrain({FOREVER}, gate=Gate(first))"
    gang = start(program)
    until_done(gang, folder, 5)
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped"
    halted_at(folder, 1, 2)


def test_those_who_are_in_no_loop_are_stopped_at_once(start: Start, folder: Path) -> None:
    gang = start(IN_STEP + "train(5)\ntime.sleep(1000)", limits=EVER)
    gang.until(lambda _: (folder / "kept").exists(), "its end")
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
