"""`oarlock exec` on a cluster: in each task's own pod, as the task is, and its exit code is ours."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.protocol.spec import Spec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import INDEX, ROLE
from oarlock.engines.kubernetes.claims import task_pod
from oarlock.engines.kubernetes.lifecycle import stop_delete, submit
from oarlock.job import job_file
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Named
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.terminals import Terminal
from tests.support.waiting import eventually

PROGRAM = """
    import time
    while True:
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("executing")


@pytest.fixture(autouse=True)
def home(place: Path, surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


@pytest.fixture(scope="module")
def run(place: Path, api: Api, cluster: Any) -> Iterator[RunFolder]:
    name = "insp-exec"
    folder = place / "program"
    folder.mkdir()
    write(folder / "train.py", PROGRAM)
    sets = [f"name={name}", *SMALL_SETTINGS, "roles.worker.replicas=2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OARLOCK_HOME", str(place / "home"))
        patch.setenv("KUBECONFIG", str(cluster.user))
        run = submit.start(job_file.load("train.py", sets=[*sets, "env.MINE=yes"], cwd=folder), name, api)
        try:
            eventually(lambda: _is_running(run.name), "two running tasks")
            yield run
        finally:
            stop_delete.delete(api, Named(name), now=True, patience=300)
            stop_delete.delete_claims(api, stop_delete.claims_of(api, name), 60)


def _is_running(name: str) -> bool:
    done = subprocess.run([SCRIPT, "status", "--json", name], capture_output=True, text=True, check=True)
    return [task["state"] for task in json.loads(done.stdout)["tasks"]] == ["running"] * 2


@only_in_soak
def test_each_task_has_its_own_pod_and_variables(oarlock: Any, run: RunFolder) -> None:
    names = "('RANK', 'OARLOCK_INDEX', 'MINE')"
    show = f"import os, socket; print(socket.gethostname(), *(os.environ[name] for name in {names}))"
    for words, expected in (
        ((), f"{run.name}-lead-0 0 0 yes"),
        (("--task", "worker-0"), f"{run.name}-lead-0 0 0 yes"),
        (("--task", "worker-1"), f"{run.name}-worker-0 1 1 yes"),
    ):
        done = oarlock("exec", run.name, *words, "--", "python3", "-c", show)
        assert (done.returncode, done.stdout) == (0, expected + "\n"), done.stderr


# The command line, whose requests for a websocket are written down on their way.
WITNESS = """
import sys
from oarlock.cli import main
from oarlock.engines.kubernetes.api import websocket
connected = websocket.connected

def looked_at(*given):
    open(sys.argv.pop(), "a").write(repr(given[1:]))
    return connected(*given)

websocket.connected = looked_at
main()
"""


def test_the_jobs_env_is_in_no_address(run: RunFolder, tmp_path: Path) -> None:
    """An API server writes those into its audit log."""
    words = ["exec", run.name, "--", "sh", "-c", "echo $MINE", str(tmp_path / "asked")]
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "yes\n"), done.stderr
    asked = (tmp_path / "asked").read_text()
    assert "echo $MINE" in asked
    assert "yes" not in asked


def test_it_is_in_the_programs_folder_and_its_exit_code_is_ours(oarlock: Any, run: RunFolder) -> None:
    done = oarlock("exec", "--", "sh", "-c", "ls; echo $CHECKPOINT_DIR; echo oh >&2; exit 7")
    assert (done.returncode, done.stderr) == (7, "oh\n")
    assert done.stdout.splitlines() == ["train.py", f"/oarlock/store/runs/{run.name}/checkpoints"]
    done = oarlock("exec", "--json", "--", "sh", "-c", "pwd; exit 7")
    assert json.loads(done.stdout) == {
        "code": 7,
        "stdout": f"/oarlock/store/runs/{run.name}/program\n",
        "stderr": "",
    }
    assert done.returncode == 7


def test_bytes_go_through_as_they_are_and_end(run: RunFolder) -> None:
    """More than any buffer on the way: who only writes would wait for ever."""
    data = random.Random(1).randbytes(20_000_000)
    done = subprocess.run([SCRIPT, "exec", "--", "cat"], input=data, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr, done.stdout == data) == (0, b"", True)


def test_on_a_terminal_it_has_one(run: RunFolder, tmp_path: Path) -> None:
    program = """
import os, sys, time
deadline = time.monotonic() + 250
while not any(os.get_terminal_size()) and time.monotonic() < deadline:
    time.sleep(0.05)  # its node sets it when the program may run already
print(os.isatty(0), os.get_terminal_size())
sys.exit(int(input("code? ")))
"""
    words = [str(SCRIPT), "exec", "--task", "worker-1", "--", "python3", "-c", program]
    terminal = Terminal(words, tmp_path, rows=30, columns=90)
    try:
        terminal.until("code? ")
        assert "True os.terminal_size(columns=90, lines=30)" in terminal.shown
        terminal.type("3\r")
        assert terminal.end() == 3
    finally:
        terminal.close()


def test_a_reader_that_leaves_is_not_an_error(run: RunFolder) -> None:
    words = f"'{SCRIPT}' exec -- sh -c 'while echo line; do :; done' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("line\n141\n", "")


def test_what_cannot_be_is_one_line(oarlock: Any, run: RunFolder) -> None:
    for words, code, said in (
        (("exec", "--", "nosuch"), 127, "oarlock: nosuch: No such file or directory"),
        (("exec", "--task", "worker-2", "--", "ls"), 2, "has no task worker-2; it has worker-0, worker-1"),
        (("exec", run.name), 2, f"no command; for example: oarlock exec {run.name} -- nvidia-smi"),
        (("exec", run.name, "ls"), 2, "a command comes after --: oarlock exec [RUN] -- COMMAND"),
    ):
        done = oarlock(*words)
        assert done.returncode == code
        assert said in done.stderr
        assert len(done.stderr.splitlines()) <= 2


class Pods:
    """Seats of workers: the leader's, and a Job's whose first is the second."""

    def __init__(self, *present: int) -> None:
        self.present = present

    def all(self, *_: str) -> list[dict[str, Any]]:
        return [_pod(seat) for seat in reversed(self.present)]


def _pod(seat: int) -> dict[str, Any]:
    offset = min(seat, 1)
    env = [{"name": "OARLOCK_SEAT_OFFSET", "value": str(offset)}]
    return {
        "metadata": {"name": f"seat-{seat}", "labels": {ROLE: "worker", INDEX: str(seat - offset)}},
        "spec": {"containers": [{"name": "main", "env": env}]},
        "status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }


@pytest.mark.parametrize(
    ("present", "least", "processes", "task", "expected"),
    [
        ((0, 1, 2), 3, 1, "worker-2", "seat-2"),
        ((0, 2), 3, 1, "worker-1", None),  # it is being replaced
        ((0, 2), 1, 1, "worker-1", "seat-2"),  # the others went on without it
        ((0, 1, 2), 6, 2, "worker-3", "seat-1"),
        (tuple(range(12)), 12, 1, "worker-10", "seat-10"),
    ],
)
def test_which_pod_has_which_task(
    present: tuple[int, ...], least: int, processes: int, task: str, expected: str | None
) -> None:
    size = max(present) * processes + processes
    spec = Spec(
        run="r",
        folder="",
        cwd="",
        program=None,  # type: ignore[arg-type]
        sizes={"worker": size},
        folders={},
        least={"worker": least},
        processes={"worker": processes},
    )
    if expected is None:
        with pytest.raises(Exception, match="no pod of worker-1 is running"):
            task_pod.pod_of(Pods(*present), Named("r"), spec, task)  # type: ignore[arg-type]
    else:
        assert task_pod.pod_of(Pods(*present), Named("r"), spec, task) == expected  # type: ignore[arg-type]
