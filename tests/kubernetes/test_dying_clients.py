"""The client may die at any call: there is a complete run, or the next command leaves nothing of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import Named, written
from tests.support.kubernetes.small import SMALL_WORDS, sets
from tests.support.waiting import eventually

DYING = Path(__file__).parents[1] / "support" / "kubernetes" / "dying.py"
PAIR = (*SMALL_WORDS, "-n", "2", *sets("kubernetes.claim=none", "limits.grace=1s"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "program", "import time\ntime.sleep(0.5)\nprint('done')\n")


def dying(calls: int, *words: str) -> int:
    """How the client ended that could make so many calls."""
    done = subprocess.run(
        [sys.executable, str(DYING), str(calls), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_sending_a_run(oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]) -> None:
    outcomes = []
    for calls in range(40):
        name = f"live-send-{calls}"
        ended.append(name)
        code = dying(calls, "run", "--on", "kubernetes", "-d", "--name", name, *PAIR, str(program))
        oarlock("ps", "--refresh")
        if name in [run.name for run in runs.all_runs()]:
            done = oarlock("attach", name)
            assert done.returncode == 0, (calls, done.stdout + done.stderr)
            assert oarlock("delete", name).returncode == 0
            outcomes.append("complete")
        else:
            outcomes.append("nothing")
        assert stop_delete.remaining(api, Named(name)) == [], calls
        if code == 0:
            break
    else:
        raise AssertionError("a submission takes more calls than that?")
    assert outcomes == sorted(outcomes, reverse=True)  # nothing up to some call, complete from there on
    assert outcomes.count("nothing") >= 8
    assert outcomes.count("complete") >= 2


def test_deleting_a_run(oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]) -> None:
    """From the first delete on Kubernetes removes all that the leading Job owns, with nobody's help."""
    untouched: list[str] = []
    for calls in range(60):
        name = f"live-del-{calls}"
        ended.append(name)
        words = ("run", "--on", "kubernetes", "-d", "--name", name, *PAIR, str(program))
        assert oarlock(*words).returncode == 0
        code = dying(calls, "delete", "--force", name)
        if _is_whole(api, name):
            untouched.append(name)
        if code == 0:
            break
    else:
        raise AssertionError("a deletion takes more calls than that?")
    assert calls >= 6
    assert len(untouched) >= 2
    for name in ended:
        if name in untouched:
            done = oarlock("attach", name)
            assert done.returncode == 0, (name, done.stdout + done.stderr)
        else:
            _until_gone(api, name)


def _until_gone(api: Api, name: str) -> None:
    eventually(lambda: not stop_delete.remaining(api, Named(name)), f"end of {name}, left to Kubernetes")


def _is_whole(api: Api, name: str) -> bool:
    jobs = api.all("Job", selecting(name))
    return len(jobs) == 2 and not any("deletionTimestamp" in job["metadata"] for job in jobs)


def test_stopping_and_resuming_a_run(
    oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]
) -> None:
    """Stopped half-way is stopped by the next look, and can be resumed."""
    program.write_text("import time\ntime.sleep(600)\n")  # longer than the test
    ended.append("live-halt")
    assert (
        oarlock("run", "--on", "kubernetes", "-d", "--name", "live-halt", *PAIR, str(program)).returncode == 0
    )
    eventually(lambda: "running" in oarlock("status", "live-halt").stdout.split("\n")[0], "running tasks")
    for calls in range(3, 40):
        assert dying(calls, "stop", "live-halt") == -signal.SIGKILL
        jobs = api.all("Job", selecting("live-halt"))
        if any(job["spec"].get("suspend") for job in jobs):
            break
    assert any(job["spec"].get("suspend") for job in jobs)  # one of two, most often: a client has threads
    eventually(lambda: "live-halt stopped" in oarlock("status", "live-halt").stdout, "stopped run")
    assert all(job["spec"]["suspend"] for job in api.all("Job", selecting("live-halt")))
