"""`oarlock chaos` on real runs of this machine: what it does to them, and what it says about it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.net import control
from oarlock.cli.chaos_run.inflict import Chaos, Plan
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.small_programs import ENDLESS, write
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

# Nobody gets through its first step before all are in theirs, as with a collective: who is preempted before
# all have a gate loses steps.
STEPS = """
import pathlib, sys, time, oarlock
me = oarlock.current()
state = oarlock.State(sum=0)
def meet():
    pathlib.Path(f"in-{me.generation}-{me.rank}").touch()
    while len(list(pathlib.Path().glob(f"in-{me.generation}-*"))) < me.world:
        time.sleep(0.01)
begin = state.step
for step in state.steps(int(sys.argv[1]), save=10):
    if step == begin:
        meet()
    time.sleep(0.02)
    state.sum += step
    state.report(sum=state.sum)
"""
# A while after it was disturbed first, for who disturbs it may take as long as it takes to begin.
ENDS_LATER = (
    STEPS.replace("State(sum=0)", "State(sum=0, total=10**6)")
    .replace(
        "begin =", "state.total = min(state.total, state.step + 60 if me.generation > 1 else 10**6)\nbegin ="
    )
    .replace("int(sys.argv[1])", "state.total")
)
REPORT = {
    "run",
    "state",
    "seed",
    "kinds",
    "elapsed",
    "inflicted",
    "recovered",
    "refused",
    "recovery",
    "repeated",
    "goodput",
    "generations",
    "problem",
    "faults",
}
FAULT = {
    "kind",
    "target",
    "generation",
    "at",
    "step",
    "seconds",
    "resumed",
    "recovered",
    "repeated",
    "about",
    "problem",
}
QUICK = ("--yes", "--every", "0.4s", "--pause", "0.5s")
# Whether there were new steps before the next kill is a question of speed.
OFTEN = ("--set", "limits.restarts=1000")

Start = Callable[..., RunFolder]


@pytest.fixture
def start(oarlock: Any, tmp_path: Path) -> Start:
    """Two workers, in their steps."""

    def make(*words: str, program: str = STEPS, steps: int = 10**6) -> RunFolder:
        write(tmp_path / "train.py", program)
        started = oarlock("run", "-d", "--name", "living", "-n", "2", *words, "train.py", str(steps))
        assert started.returncode == 0, started.stderr
        run = runs.find("living")
        reports = "report" in program
        eventually(
            lambda: all(
                task.state == "running" and (task.step or not reports) for task in run.state().tasks.values()
            ),
            "first steps",
        )
        return run

    return make


def notes(run: RunFolder) -> list[str]:
    told = [event["text"] for event in run.events() if event["kind"] == "note"]
    return [text for text in told if text.startswith("chaos: ")]


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def goes_on(run: RunFolder, task: str = "worker-0") -> None:
    before = run.state().tasks[task].step or 0
    eventually(lambda: (run.state().tasks[task].step or 0) > before, f"another step of {task}")


def test_killed_tasks_are_failures_that_the_run_recovers_from(oarlock: Any, start: Start) -> None:
    run = start(*OFTEN)
    done = oarlock("chaos", *QUICK, "--kinds", "kill", "--faults", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert set(report) == REPORT
    assert (report["run"], report["state"], report["kinds"]) == ("living", "running", ["kill"])
    assert (report["inflicted"], report["recovered"], report["generations"]) == (3, 3, 3)
    assert 0 < report["recovery"]["median"] <= report["recovery"]["p99"] == report["recovery"]["max"]
    assert 0 <= report["goodput"] < 1  # none where each kill came before a new step
    assert [one["generation"] for one in report["faults"]] == [1, 2, 3]
    for fault in report["faults"]:
        assert set(fault) == FAULT
        assert fault["recovered"] is True
        assert fault["resumed"] % 10 == 1, "the step after a checkpoint"
        assert fault["repeated"] == max(0, fault["step"] - fault["resumed"] + 1)
    assert report["repeated"] == sum(fault["repeated"] for fault in report["faults"])
    assert notes(run) == [f"chaos: killed {fault['target']}" for fault in report["faults"]]
    blamed = [(event["task"], event["reason"]) for event in run.events() if event["kind"] == "restart"]
    assert blamed == [(fault["target"], "killed by SIGKILL") for fault in report["faults"]]
    assert run.state().restarts == 3


def test_a_preempted_gang_loses_no_step_and_no_restart(oarlock: Any, start: Start) -> None:
    run = start("--set", "limits.restarts=0")
    done = oarlock("chaos", *QUICK, "--kinds", "preempt", "--faults", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["recovered"], report["generations"], report["repeated"]) == (2, 2, 0)
    for fault in report["faults"]:
        assert (fault["target"], fault["about"]) == ("the gang", False)
        assert fault["resumed"] == fault["step"] + 1, "none again, none left out"
    assert notes(run) == ["chaos: preempted the gang"] * 2
    assert run.state().restarts == 0


def test_a_paused_task_stands_still_and_goes_on(oarlock: Any, start: Start) -> None:
    run = start("--set", "limits.restarts=0")
    done = oarlock("chaos", "--yes", "--every", "0.4s", "--pause", "3s", "--kinds", "pause", "--faults", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"pause (worker-\d) for 3s: resumed at step \d+ after \d+\.\d\ds\n", done.stdout)
    assert len(lines) == 1
    assert notes(run) == [f"chaos: {what}" for task in lines for what in _pause(task)]
    events = list(run.events())
    for number, event in enumerate(events):
        if event.get("text", "").startswith("chaos: paused"):
            task = event["text"].split()[2]
            reported = [event["t"], *(one["t"] for one in events[number:] if one.get("task") == task)]
            silences = [after - before for before, after in zip(reported, reported[1:])]
            assert max(silences) > 2, "two reports a second are kept"
    assert run.state().generation == 1


def _pause(task: str) -> list[str]:
    return [f"paused {task} for 3 s", f"continued {task}"]


def test_a_line_for_each_fault_and_the_report(oarlock: Any, start: Start) -> None:
    start(*OFTEN)
    done = oarlock("chaos", *QUICK, "--faults", "4", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *faults = done.stdout.partition("\n\n")[0].splitlines()
    assert first == "seed 5"
    assert len(faults) == 4
    for line in faults:
        assert re.fullmatch(r" +\d+\.\ds  (kill|pause|preempt) .*: resumed at step \d+ after .*", line)
    for wanted in (
        r"faults +4, 4 recovered",
        r"time to recover  median \S+s, p99 \S+s, max \S+s",
        r"steps repeated +(about )?\d+",
        r"goodput +\d+%",
        r"generations +\d+",
        r"seed +5",
        r"run +running",
    ):
        assert re.search(f"^{wanted}$", done.stdout, re.MULTILINE), done.stdout


def test_a_run_that_is_only_starting_is_waited_for(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", STEPS)
    assert oarlock("run", "-d", "--name", "new", "-n", "2", "train.py", "1000000").returncode == 0
    done = oarlock("chaos", *QUICK, "--kinds", "preempt", "--faults", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["generations"], report["faults"][0]["generation"]) == (1, 1)


@only_in_soak
def test_the_same_seed_does_the_same(oarlock: Any, start: Start) -> None:
    start(*OFTEN)
    words = (*QUICK, "--faults", "5", "--seed", "11", "--every", "0.1s", "--json")
    both = [json.loads(oarlock("chaos", *words).stdout) for _ in range(2)]
    done = [[(fault["kind"], fault["target"]) for fault in report["faults"]] for report in both]
    assert done[0] == done[1]
    assert len(set(done[0])) > 1


def test_it_asks_before_it_touches_a_run(oarlock: Any, start: Start, terminal: Any) -> None:
    run = start()
    done = oarlock("chaos", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("oarlock: cannot ask for confirmation without a terminal; --yes skips")
    assert notes(run) == []
    asked = terminal("chaos", "--kinds", "kill", "--faults", "1", "--every", "0.1s")
    asked.until("inflict 1 fault (kill) on living? [y/N]")
    asked.type("n\n")
    assert asked.end() == 1
    assert notes(run) == []
    asked = terminal("chaos", "--kinds", "kill", "--faults", "1", "--every", "0.1s")
    asked.until("[y/N]")
    asked.type("y\n")
    assert asked.end() == 0
    assert len(notes(run)) == 1


def test_ctrl_c_while_a_task_is_paused_continues_it_and_still_reports(start: Start) -> None:
    run = start()
    client = _pausing(run, "3000s")
    pid = _stopped(run)
    assert client.stdout is not None
    shown = b""
    while b"pause worker-" not in shown:  # it may be stopped before the client has heard that it will be
        shown += os.read(client.stdout.fileno(), 1 << 16)
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=300)
    out = shown.decode() + out
    assert client.returncode == 130, out + err
    assert re.search(r"pause worker-\d for 3000s: interrupted\n", out)
    assert re.search(r"faults +1, 0 recovered\n", out)
    eventually(lambda: process_state(pid) != "T", "SIGCONT")
    goes_on(run, "worker-0")
    goes_on(run, "worker-1")
    assert run.state().generation == 1


@only_in_soak
def test_a_pause_ends_even_if_who_asked_for_it_is_dead(start: Start) -> None:
    run = start()
    client = _pausing(run, "2s")
    pid = _stopped(run)
    client.kill()
    client.communicate(timeout=300)
    eventually(lambda: process_state(pid) != "T", "SIGCONT")
    goes_on(run)


def _pausing(run: RunFolder, pause: str) -> subprocess.Popen[str]:
    words = ["chaos", run.name, "--yes", "--kinds", "pause", "--pause", pause, "--every", "0.1s"]
    return subprocess.Popen([SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _stopped(run: RunFolder) -> int:
    pids = [task.pid or 0 for task in run.state().tasks.values()]
    return eventually(lambda: [pid for pid in pids if process_state(pid) == "T"], "pause")[0]


def test_a_run_that_ends_meanwhile_is_fine(oarlock: Any, start: Start) -> None:
    run = start(*OFTEN, program=ENDS_LATER)
    done = oarlock("chaos", *QUICK, "--kinds", "kill,preempt", "--every", "1s", "--faults", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^run +succeeded$", done.stdout, re.MULTILINE)
    assert run.state().state == "succeeded"
    task = run.state().tasks["worker-0"]
    assert task.metrics["sum"] == sum(range(task.step or 0)), "no step left out, none twice"


def test_a_kill_that_the_budget_does_not_allow_is_told_as_the_end(oarlock: Any, start: Start) -> None:
    start("--set", "limits.restarts=0")
    done = oarlock("chaos", *QUICK, "--kinds", "kill", "--faults", "3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"kill worker-\d at step \d+: the run failed: limits.restarts is 0\n", done.stdout)
    assert re.search(r"faults +1, 0 recovered\n", done.stdout)
    assert re.search(r"\nrun +failed\n", done.stdout)


@only_in_soak
def test_what_does_not_recover_in_time_ends_it(home: Path, start: Start) -> None:
    """The second generation never comes to a step."""
    stuck = "import oarlock, time\nif oarlock.current().generation > 1: time.sleep(600)\n"
    run = start(program=stuck + STEPS)
    chaos = Chaos(run, Plan(("kill",), faults=3, every=0.1, pause=0, seed=1), run.is_held)
    chaos.patience = 3
    chaos.go()
    [fault] = chaos.report.failed
    assert fault.problem == "not recovered after 3 s"
    assert len(chaos.report.faults) == 1


@only_in_soak
def test_a_program_that_does_not_report_recovers_too(oarlock: Any, start: Start) -> None:
    start(program=ENDLESS)
    done = oarlock("chaos", *QUICK, "--faults", "4", "--seed", "5", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["recovered"], report["goodput"], report["repeated"]) == (4, None, 0)
    assert {fault["kind"] for fault in report["faults"]} == {"kill", "pause", "preempt"}


def test_tasks_on_other_machines_are_reached(oarlock: Any, start: Start) -> None:
    run = start(*OFTEN, "--machines", "2")
    done = oarlock("chaos", *QUICK, "--kinds", "kill,pause", "--faults", "6", "--seed", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    faults = json.loads(done.stdout)["faults"]
    assert {(fault["kind"], fault["target"]) for fault in faults} >= {
        ("kill", "worker-1"),
        ("pause", "worker-1"),
    }
    assert [note for note in notes(run) if "continued" in note]


def test_what_makes_no_sense_is_refused(oarlock: Any, start: Start) -> None:
    run = start()
    for words, complaint in (
        (["--kinds", "kil"], "no such fault: kil; expected any of kill, pause, preempt"),
        (["--kinds", "kill,delete"], "delete is for runs on Kubernetes: living has no pods"),
        (["--kinds", ","], "--kinds is empty"),
        (["--every", "often"], "--every: expected a duration"),
        (["--pause", "2h"], "--pause: expected at most 1h, found 2h"),
        (["--faults", "0"], "Invalid value for '--faults'"),
        (["nobody"], "there is no run called nobody"),
    ):
        done = oarlock("chaos", "--yes", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"oarlock: {complaint}"), done.stderr
    for question, complaint in (
        ({"do": "explode"}, "no such fault: explode"),
        ({"do": ["kill"]}, "no such fault"),
        ({"do": "kill", "generation": 2, "task": "worker-0"}, "that generation is not running"),
        ({"do": "kill", "generation": 1, "task": "worker-7"}, "worker-7 is not running"),
        ({"do": "kill", "generation": 1, "task": ["worker-0"]}, "which task is it that you kill?"),
        ({"do": "pause", "generation": 1, "task": "worker-0"}, "a pause takes 0 to 3600 s"),
        ({"do": "pause", "generation": 1, "task": "worker-0", "seconds": -1}, "a pause takes"),
        ({"do": "pause", "generation": 1, "task": "worker-0", "seconds": True}, "a pause takes"),
        ({"do": "delete", "generation": 1}, "which pod is it that you delete?"),
    ):
        answer = control.ask(run.path, {"ask": "fault", **question})
        assert answer["ok"] is False
        assert answer["why"].startswith(complaint)
    assert notes(run) == []
    goes_on(run)


def test_a_run_that_has_ended_is_left_alone(oarlock: Any, records: Path) -> None:
    done = oarlock("chaos", "--yes", "good-run")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "oarlock: good-run is not running: it has succeeded",
    )


def test_the_report_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert all(f'"{name}"' in text for name in REPORT | FAULT)
