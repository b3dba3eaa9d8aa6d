"""The client may die at any call: there is a complete run, or the next command leaves nothing of it.

`make soak` kills it at every call; otherwise at some that are spread over all of them, and at the last ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support import soaking
from tests.support.commands import Command
from tests.support.kubernetes.driving import Named, state_of, written
from tests.support.kubernetes.small import SMALL_WORDS, sets
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

DYING = Path(__file__).parents[1] / "support" / "kubernetes" / "dying.py"
PAIR = (*SMALL_WORDS, "-n", "2", *sets("kubernetes.claim=none", "limits.grace=1s"))
ENDLESS = 10**6


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "program", "import time\ntime.sleep(0.5)\nprint('done')\n")


def sending(name: str, program: Path) -> tuple[str, ...]:
    return ("run", "--on", "kubernetes", "-d", "--name", name, *PAIR, str(program))


def dying(calls: int, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A client that is killed when it has made so many calls."""
    done = subprocess.run(
        [sys.executable, str(DYING), str(calls), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done


def calls_of(*words: str) -> int:
    """How many calls a client makes that nobody kills."""
    told = re.search(r"^calls: (\d+)$", dying(ENDLESS, *words).stderr, re.MULTILINE)
    assert told
    return int(told[1])


def points(calls: int, ordinary: int) -> list[int]:
    """After how many calls to kill: always the last two, and some before them, or all."""
    early = soaking.cases([calls * one // ordinary for one in range(ordinary - 2)], range(calls))
    return sorted({*early, calls - 2, calls - 1})


def at_once(deed: Callable[[str], object], names: list[str]) -> None:
    """Two at a time: most of a client's life is waiting for the cluster."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(deed, names))


@only_in_soak
def test_sending_a_run(oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]) -> None:
    calls = calls_of(*sending("live-sent", program))
    killed = {f"live-send-{point}": point for point in (*points(calls, 5), ENDLESS)}
    ended += ["live-sent", *killed]
    outcomes: dict[str, str] = {}

    def send(name: str) -> None:
        """On a machine of its own, where the next command finds only this one."""
        env = {**os.environ, "OARLOCK_HOME": str(home / name)}
        dying(killed[name], *sending(name, program), env=env)
        assert oarlock("ps", "--refresh", env=env).returncode == 0
        outcomes[name] = "complete" if (home / name / "runs" / name).exists() else "nothing"
        if outcomes[name] == "complete":
            done = oarlock("attach", name, env=env)
            assert done.returncode == 0, (name, done.stdout + done.stderr)
            assert oarlock("delete", name, env=env).returncode == 0
        assert stop_delete.remaining(api, Named(name)) == [], name

    at_once(send, list(killed))
    told = [outcomes[name] for name in killed]
    assert told == sorted(told, reverse=True), outcomes  # nothing up to some call, complete from there on
    assert calls >= 10
    assert told.count("nothing") >= 3
    assert told.count("complete") >= 1


@only_in_soak
def test_deleting_a_run(oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]) -> None:
    """From the first delete on Kubernetes removes all that the leading Job owns, with nobody's help."""
    ended.append("live-del")
    assert oarlock(*sending("live-del", program)).returncode == 0
    calls = calls_of("delete", "--force", "live-del")
    assert calls >= 6
    killed = {f"live-del-{point}": point for point in points(calls, 4)}
    ended += killed
    at_once(lambda name: oarlock(*sending(name, program)), list(killed))
    at_once(lambda name: dying(killed[name], "delete", "--force", name), list(killed))
    untouched = [name for name in killed if _is_whole(api, name)]
    assert untouched
    assert len(untouched) < len(killed)
    for name in killed:
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


@only_in_soak
def test_stopping_and_resuming_a_run(
    oarlock: Command, home: Path, api: Api, program: Path, ended: list[str]
) -> None:
    """Stopped half-way is stopped by the next look, and can be resumed."""
    program.write_text("import time\ntime.sleep(600)\n")  # longer than the test
    ended.append("live-halt")
    assert oarlock(*sending("live-halt", program)).returncode == 0
    eventually(lambda: state_of("live-halt").state == "running", "running tasks")
    for calls in range(3, 40):
        assert dying(calls, "stop", "live-halt").returncode == -signal.SIGKILL
        jobs = api.all("Job", selecting("live-halt"))
        if any(job["spec"].get("suspend") for job in jobs):
            break
    assert any(job["spec"].get("suspend") for job in jobs)  # one of two, most often: a client has threads
    eventually(lambda: state_of("live-halt").state == "stopped", "stopped run")
    assert "live-halt stopped" in oarlock("status", "live-halt").stdout
    assert all(job["spec"]["suspend"] for job in api.all("Job", selecting("live-halt")))
