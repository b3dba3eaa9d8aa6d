"""A run supervises itself: pods go and come, clients go and come, and it ends well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import until_stepping, written
from tests.support.kubernetes.small import SMALL_WORDS, start_detached
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

LONG = 300  # seconds: Kubernetes lets those wait that it starts again
STEPS = """
import signal, sys, time, oarlock
signal.signal(signal.SIGTERM, lambda *_: None)
me = oarlock.current()
# Before its last generation it goes on: whoever disturbs it may take as long as it takes.
for step in range(40 if me.generation >= int(sys.argv[1]) else 10**6):
    print("step", step, "of generation", me.generation)
    me.report(step=step + 1, loss=1.0)
    if me.should_stop:
        print("leaving as asked")
        break
    time.sleep(0.05)
"""

FAILS_ONCE = """
import os, pathlib, sys, oarlock
me = oarlock.current()
left = me.checkpoints / "left"
if me.rank == 0 and left.exists():
    print("found what it left in generation", me.generation)
elif me.rank == 0:
    left.touch()
    sys.exit(9)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "program", STEPS)


def leader(api: Api, name: str) -> str:
    return str(api.all("Pod", f"{selecting(name)},{LEAD}=true")[0]["metadata"]["name"])


def follower(api: Api, name: str) -> str:
    return str(api.all("Pod", f"{selecting(name)},!{LEAD}")[0]["metadata"]["name"])


@only_in_soak  # test_chaos.py takes the same pods away from a program that saves
def test_pods_that_are_deleted_come_back_and_the_run_ends_well(
    oarlock: Command, api: Api, program: Path, ended: list[str]
) -> None:
    ended.append("live-pods")
    start_detached(oarlock, "live-pods", program, "3")
    until_stepping(runs.find("live-pods"), 1)
    api.delete("Pod", follower(api, "live-pods"))
    until_stepping(runs.find("live-pods"), 2, seconds=LONG)
    api.delete("Pod", leader(api, "live-pods"))
    until_stepping(runs.find("live-pods"), 3, seconds=LONG)
    done = oarlock("attach", "live-pods")
    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads(oarlock("status", "--json", "live-pods").stdout)
    assert (state["state"], state["generation"], state["restarts"]) == ("succeeded", 3, 0)
    assert state["tasks"][0]["step"] == 40
    told = [json.loads(line) for line in oarlock("events", "--json", "live-pods").stdout.splitlines()]
    assert [event["generation"] for event in told if event["kind"] == "generation"] == [1, 2, 3]
    assert [event["kind"] for event in told].count("end") == 1
    for task in state["tasks"]:  # the other is asked to leave when the first is done
        said = oarlock("logs", "--task", task["name"], "live-pods").stdout.splitlines()
        said = [line for line in said if " step " in line]
        assert said == [f"{task['name']} | step {step} of generation 3" for step in range(task["step"])]


@only_in_soak  # test_docs.py stops and resumes a run, test_stop.py one that has to be stopped at once
def test_stop_keeps_the_run_for_resume(oarlock: Command, api: Api, program: Path, ended: list[str]) -> None:
    ended.append("live-stop")
    start_detached(oarlock, "live-stop", program, "2")
    until_stepping(runs.find("live-stop"), 1)
    done = oarlock("stop", "live-stop")
    assert done.returncode == 0, done.stderr
    assert "live-stop stopped" in done.stdout
    assert "leaving as asked" in oarlock("logs", "live-stop").stdout
    eventually(lambda: not api.all("Pod", selecting("live-stop")), "end of its pods, which run no more")
    assert oarlock("stacks", "live-stop").returncode == 2
    done = oarlock("run", "--resume", "live-stop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generation 2" in done.stdout
    state = json.loads(oarlock("status", "--json", "live-stop").stdout)
    assert (state["state"], state["generation"]) == ("succeeded", 2)


def test_an_agent_that_ends_inside_its_pod_is_started_again(
    oarlock: Command, api: Api, program: Path, ended: list[str]
) -> None:
    """In place, by the kubelet; what it said before and after is there once."""
    from oarlock.engines.kubernetes.api import pod_exec

    ended.append("live-agent")
    start_detached(oarlock, "live-agent", program, "3")
    until_stepping(runs.find("live-agent"), 1)
    words = ["python3", "-c", "import os; os.kill(1, 15)"]
    pod_exec.run(api, follower(api, "live-agent"), words)
    until_stepping(runs.find("live-agent"), 2, seconds=LONG)
    pod_exec.run(api, leader(api, "live-agent"), words)
    done = oarlock("attach", "live-agent", timeout=300)  # a leader that starts again waits its turn
    assert done.returncode == 0, done.stdout + done.stderr
    assert {
        pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in api.all("Pod", selecting("live-agent"))
    } == {1}
    for generation, task in [(1, "worker-0"), (1, "worker-1"), (2, "worker-1"), (3, "worker-0")]:
        said = oarlock(
            "logs", "--generation", str(generation), "--task", task, "live-agent"
        ).stdout.splitlines()
        numbers = [int(line.split()[3]) for line in said if " step " in line]
        assert numbers == list(range(len(numbers)))
        assert numbers


def test_stacks_come_from_every_pod(oarlock: Command, api: Api, program: Path, ended: list[str]) -> None:
    ended.append("live-stacks")
    start_detached(oarlock, "live-stacks", program, "2")
    until_stepping(runs.find("live-stacks"), 1)
    done = oarlock("stacks", "--json", "live-stacks")
    assert done.returncode == 0, done.stdout + done.stderr
    answers = json.loads(done.stdout)
    assert [(answer["task"], answer["state"]) for answer in answers] == [
        ("worker-0", "shown"),
        ("worker-1", "shown"),
    ]
    for answer in answers:
        assert any(f"/{program.name}" in frame for frame in answer["stack"])
        # The program may be inside `report` just now; what started it is nobody's business.
        assert not any("/oarlock/agent/zygote/" in frame for frame in answer["stack"])


def test_a_task_that_runs_out_of_memory_is_told_so(
    oarlock: Command, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-memory")
    program = written(tmp_path / "program", "hog = [bytearray(b'x' * 50_000_000) for _ in range(20)]\n")
    words = ("run", "--on", "kubernetes", "--name", "live-memory", *SMALL_WORDS, "--set", "limits.restarts=0")
    done = oarlock(*words, str(program))
    assert done.returncode == 137
    assert "worker-0: killed because memory ran out: use smaller batches" in done.stderr


@only_in_soak
def test_a_side_car_that_never_ends_does_not_keep_the_run(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-side-car")
    program = written(tmp_path / "program", "print('done')\n")
    security = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
    quit = "'import signal, time; signal.signal(15, lambda *_: exit(0)); time.sleep(9999)'"
    side_car = f"{{name: proxy, image: 'python:3.11-slim', command: [python3, -c, {quit}], {security}}}"
    pod = ("--set", f"kubernetes.pod.containers=[{side_car}]")
    words = ("run", "--on", "kubernetes", "--name", "live-side-car", "-n", "2", *SMALL_WORDS, *pod)
    done = oarlock(*words, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: not api.all("Pod", selecting("live-side-car")), "end of the pods")
    assert oarlock("status", "live-side-car").stdout.startswith("live-side-car succeeded")


@only_in_soak
def test_a_failed_run_is_gone_on_with(oarlock: Command, tmp_path: Path, ended: list[str]) -> None:
    """With the program as it was sent, and what it left in its folders."""
    ended.append("live-onward")
    program = written(tmp_path / "program", FAILS_ONCE)
    words = (
        "run",
        "--on",
        "kubernetes",
        "--name",
        "live-onward",
        "-n",
        "2",
        *SMALL_WORDS,
        "--set",
        "limits.restarts=0",
    )
    done = oarlock(*words, str(program))
    assert done.returncode == 9, done.stdout + done.stderr
    program.write_text("changed since")
    done = oarlock("run", "--resume", "live-onward")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker-0 | found what it left in generation 2" in done.stdout
    state = json.loads(oarlock("status", "--json", "live-onward").stdout)
    assert (state["state"], state["generation"]) == ("succeeded", 2)
