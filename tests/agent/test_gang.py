"""A gang of real processes under one agent: what ends it, what restarts it, what is left of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.engines.local import local_engine
from tests.support.gangs import STEPS, Gang, is_running, until_gone

Start = Callable[..., Gang]


def test_a_run_ends_well_when_its_leader_does(start: Start) -> None:
    gang = start(STEPS + "train(20)\nprint('bye from', me.rank)")
    state = gang.end()
    assert (state.state, state.code, state.restarts) == ("succeeded", 0, 0)
    assert {task.state for task in state.tasks.values()} == {"finished"}
    assert state.tasks["worker-0"].step == state.tasks["worker-1"].total == 20
    assert {"worker-0| bye from 0", "worker-1| bye from 1"} <= set(gang.lines)


def test_the_leader_ends_the_run_and_servers_are_stopped(start: Start) -> None:
    program = "import os, signal\nif os.environ['OARLOCK_ROLE'] == 'ps': signal.pause()"
    gang = start(program, roles={"chief": 1, "worker": 1, "ps": 2})
    state = gang.end()
    assert state.state == "succeeded"
    assert {state.tasks[name].state for name in ("ps-0", "ps-1")} == {"killed"}


def test_a_worker_that_never_ends_is_stopped_after_the_grace(start: Start) -> None:
    program = "import os, signal\nif os.environ['OARLOCK_RANK'] == '1': signal.pause()"
    state = start(program, limits={"grace": "0.2s"}).end()
    assert (state.state, state.tasks["worker-1"].state) == ("succeeded", "killed")


def test_a_worker_that_is_forked_after_the_end_is_stopped_too(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine: the first is done before the second is forked, which takes longer than the grace."""
    slow = """
import os, time
before, after = iter([0, 2]), iter([1])
os.register_at_fork(before=lambda: time.sleep(next(before, 0)))
os.register_at_fork(after_in_parent=lambda: time.sleep(next(after, 0)))
"""
    (tmp_path / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = "import os, signal\nif os.environ['OARLOCK_RANK'] == '1': signal.pause()"
    state = start(program, limits={"grace": "0.1s"}).end()
    assert (state.state, state.tasks["worker-1"].state) == ("succeeded", "killed")


def test_a_killed_worker_restarts_the_whole_gang(start: Start) -> None:
    gang = start(STEPS + "train(30 if me.generation > 1 else 10**6)").until_step(5)
    others = [gang.pid("worker-0"), gang.kill("worker-1")]
    state = gang.end()
    assert (state.state, state.generation, state.restarts) == ("succeeded", 2, 1)
    [restart] = gang.of("restart")
    assert (restart["task"], restart["reason"]) == ("worker-1", "killed by SIGKILL")
    until_gone(others)


def test_progress_fills_the_restart_budget_up_again(start: Start) -> None:
    """Five kills with a budget of one: each generation gets further than the last."""
    program = """
import os, signal
train(20 * me.generation)
if me.generation < 6:
    os.kill(os.getpid(), signal.SIGKILL) if me.rank == 1 else signal.pause()
"""
    state = start(STEPS + program, limits={"restarts": 1}).end()
    assert (state.state, state.generation) == ("succeeded", 6)


def test_without_progress_the_budget_runs_out(start: Start) -> None:
    gang = start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", limits={"restarts": 2})
    state = gang.end()
    assert (state.state, state.code, state.generation) == ("failed", 128 + signal.SIGKILL, 3)
    assert gang.of("end")[0]["refusal"] == "limits.restarts is 2, and all 2 are used up"


def test_the_same_error_twice_ends_the_run(start: Start) -> None:
    gang = start("raise ValueError('no such column: age')", limits={"restarts": 10})
    state = gang.end()
    assert (state.state, state.code, state.generation) == ("failed", 1, 2)
    assert state.failure is not None
    assert (state.failure.type, state.failure.message) == ("ValueError", "no such column: age")
    assert state.failure.where is not None
    assert state.failure.where.endswith("program.py:1")


def test_a_program_fails_with_its_own_exit_code(start: Start) -> None:
    state = start("import sys; sys.exit(7)", limits={"restarts": 0}).end()
    assert (state.state, state.code) == ("failed", 7)
    assert state.failure is not None
    assert state.failure.reason == "exit code 7"


def test_the_first_failure_is_named_not_the_ones_that_follow(start: Start) -> None:
    """Worker 0 complains about its peer, as collectives do; worker 1 is the cause."""
    program = """
import os, socket, oarlock
me = oarlock.current()
host, port = os.environ['OARLOCK_LEADER'].split(':')
if me.rank == 0:
    server = socket.create_server((host, int(port)))
    peer, _ = server.accept()
    peer.recv(1)
    raise ConnectionError('peer closed')
import time
for _ in range(6000):
    try:
        peer = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
raise KeyError('label')
"""
    state = start(program, limits={"restarts": 0}).end()
    assert state.failure is not None
    assert (state.failure.task, state.failure.type) == ("worker-1", "KeyError")


def test_an_evaluator_restarts_alone(start: Start) -> None:
    program = STEPS + "train(10**6)"
    gang = start(program, roles={"worker": 1, "evaluator": 1}).until_step(3)
    worker, evaluator = gang.pid("worker-0"), gang.kill("evaluator-0")
    gang.until(
        lambda gang: gang.state.tasks["evaluator-0"].starts == 2 and gang.state.tasks["evaluator-0"].pid,
        "second start of the evaluator",
    )
    assert gang.pid("evaluator-0") != evaluator
    assert gang.pid("worker-0") == worker
    assert gang.state.generation == 1


def test_tasks_spawned_cold_see_the_same_world(start: Start) -> None:
    program = "import sys, oarlock\nme = oarlock.current()\nprint(me.rank, me.world, sys.argv[1:], __name__)"
    gang = start(program, warm=False, args=["--x", "1"])
    assert gang.end().state == "succeeded"
    assert set(gang.lines) == {
        "worker-0| 0 2 ['--x', '1'] __main__",
        "worker-1| 1 2 ['--x', '1'] __main__",
    }


def test_any_command_can_be_a_task(start: Start) -> None:
    gang = start(
        "", command=["sh", "-c", 'echo "$POD_NAME of $WORLD_SIZE"; exit $LOCAL_RANK'], roles={"worker": 1}
    )
    assert gang.end().state == "succeeded"
    assert gang.lines == ["worker-0| worker-0 of 1"]


def test_a_command_of_the_environment_is_found_though_it_is_not_activated(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    gang = start("", command=["oarlock", "version"], roles={"worker": 1})
    assert gang.end().state == "succeeded", gang.told()


def test_a_command_that_is_not_there_says_so(start: Start) -> None:
    gang = start("", command=["./no-such-thing"], roles={"worker": 1}, limits={"restarts": 0})
    state = gang.end()
    assert state.code == 127
    assert any("cannot start ./no-such-thing" in line for line in gang.lines)


def test_stop_is_graceful_then_final(start: Start, home: Path) -> None:
    program = """
import signal, sys, time, oarlock
def leave(*_):
    print('saved'); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
for step in range(10**6):
    oarlock.current().report(step + 1)
    time.sleep(0.01)
"""
    gang = start(program).until_step(2).until_step(2, task="worker-1")  # who comes later has no handler yet
    local_engine.stop(gang.run)
    state = gang.end()
    assert (state.state, state.code, state.reason) == ("stopped", 130, "stopped by the user")
    assert {"worker-0| saved", "worker-1| saved"} <= set(gang.lines)


def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(start: Start) -> None:
    program = STEPS + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); train(10**6)"
    gang = start(program, limits={"grace": "0.3s"}).until_step(2)
    local_engine.stop(gang.run)
    assert gang.end().state == "stopped"


def test_the_runtime_limit_ends_a_run(start: Start) -> None:
    state = start(STEPS + "train(10**6)", limits={"runtime": "1s"}).end()
    assert (state.state, state.code) == ("failed", 124)
    assert state.reason == "limits.runtime of 1 s is over"


def test_a_stalled_gang_is_restarted(start: Start) -> None:
    # Who has not reported is never stalled: the next generation may take its time to end.
    program = STEPS + "if me.generation == 1: train(5); time.sleep(10**6)"
    gang = start(program, limits={"stall": "1s"})
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2)
    assert "limits.stall" in gang.of("restart")[0]["reason"]


def test_a_silent_program_is_never_stalled(start: Start) -> None:
    program = "import time; time.sleep(2.5)"
    state = start(program, limits={"stall": "1s"}).end()
    assert (state.state, state.generation) == ("succeeded", 1)


CHILDREN = """
import os, subprocess, sys, time, oarlock
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10**6)'])
daemon = subprocess.Popen(
    [sys.executable, '-c', 'import time; time.sleep(10**6)'], start_new_session=True
)
print('children', child.pid, daemon.pid, flush=True)
oarlock.current().report(1)
"""


def _children(gang: Gang) -> list[int]:
    words = [line.split() for line in gang.lines if "| children" in line]
    return [int(pid) for line in words for pid in line[2:]]


@pytest.mark.parametrize("victim", ["agent", "zygote", "worker-0"])
def test_nothing_outlives_whoever_is_killed(start: Start, victim: str) -> None:
    """Tasks, their children, and children that fled into a session of their own."""
    gang = start(CHILDREN + "time.sleep(10**6)", limits={"restarts": 0})
    gang.until(lambda gang: len(_children(gang)) == 4, "four children")
    gang.until(lambda gang: len(gang.of("report")) == 2, "two reports")
    agent = gang.state.agent
    assert agent is not None
    zygote = int(Path(f"/proc/{gang.pid('worker-0')}/stat").read_text().rsplit(")", 1)[1].split()[1])
    everybody = [agent, zygote, gang.pid("worker-0"), gang.pid("worker-1"), *_children(gang)]
    assert all(map(is_running, everybody))
    os.kill({"agent": agent, "zygote": zygote}.get(victim) or gang.pid(victim), signal.SIGKILL)
    until_gone(everybody)
    state = gang.run.state()
    assert state.state == ("lost" if victim == "agent" else "failed")


def test_children_of_a_run_that_succeeded_are_gone_too(start: Start) -> None:
    gang = start(CHILDREN)
    assert gang.end().state == "succeeded"
    until_gone(_children(gang))


def test_a_dead_zygote_is_replaced_and_the_gang_restarts(start: Start) -> None:
    gang = start(STEPS + "train(20 if me.generation > 1 else 10**6)").until_step(3)
    zygote = int(Path(f"/proc/{gang.pid('worker-0')}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(zygote, signal.SIGKILL)
    state = gang.end()
    assert (state.state, state.generation) == ("succeeded", 2)


def test_a_lost_run_resumes_in_the_next_generation(start: Start) -> None:
    gang = start(STEPS + "train(20 if me.generation > 1 else 10**6)").until_step(3)
    assert gang.state.agent is not None
    os.kill(gang.state.agent, signal.SIGKILL)
    until_gone([gang.state.agent])
    assert gang.run.state().state == "lost"
    local_engine.resume(gang.run)
    state = gang.end()
    assert (state.state, state.generation, state.code) == ("succeeded", 2, 0)
    assert gang.run.state().state == "succeeded"


def test_a_child_forked_before_the_first_report_does_not_speak_for_its_task(start: Start) -> None:
    program = """
import os, sys, oarlock
if os.fork() == 0:
    oarlock.current().report(1000)
    os._exit(0)
os.wait()
oarlock.current().report(1)
"""
    gang = start(program, roles={"worker": 1})
    assert gang.end().tasks["worker-0"].step == 1
    assert [event["step"] for event in gang.of("report")] == [1]
