"""Gangs of many processes, and machines that have no room for them."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.local import local_engine
from oarlock.records import runs
from oarlock.system import processes
from tests.support.commands import SCRIPT, Command
from tests.support.gangs import Gang, until_gone
from tests.support.small_programs import STUBBORN
from tests.support.waiting import eventually

Start = Callable[..., Gang]
WAITS = """
import os, pathlib, time
pathlib.Path("started-" + os.environ["OARLOCK_RANK"]).touch()
is_chief = os.environ["OARLOCK_RANK"] == "0"
while len(list(pathlib.Path().glob("started-*" if is_chief else "go"))) < (8 if is_chief else 1):
    time.sleep(0.02)
"""


def test_agent_and_zygote_never_wait_for_each_other(start: Start) -> None:
    """Their answers and orders alone fill a socket's buffers: with 128 tasks both waited forever."""
    state = start("", command=["true"], roles={"worker": 160}).end()
    assert state.state == "succeeded"


# As sitecustomize.py in a folder of PYTHONPATH: what the zygote, and every task, imports first.
PAUSES_AT_ITS_FIRST_FORK = """
import os, signal
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGSTOP))
"""
PAUSES_AT_ONCE = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


def paused_zygote(gang: Gang) -> int:
    """The agent's child, once it is stopped by SIGSTOP."""

    def look() -> list[int]:
        gang.look()
        below = processes.descendants(gang.state.agent) if gang.state.agent else []
        return [pid for pid in below if state_of(pid) == "T"]

    return eventually(look, "zygote that is paused", evidence=gang.told)[0]


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def test_a_run_ends_whatever_its_zygote_does(home: Path, tmp_path: Path, oarlock: Command) -> None:
    """Paused with hundreds of orders to come, while it starts, and with tasks that do not end by themselves:
    the agent kills it after a while, and with it all that is below it."""
    gangs = []
    for name, pauses in (("launching", PAUSES_AT_ITS_FIRST_FORK), ("importing", PAUSES_AT_ONCE)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(pauses)
        gangs.append(
            Gang(folder, "", run=name, roles={"worker": 300}, warm=False, env={"PYTHONPATH": str(folder)})
        )
    gangs.append(Gang(tmp_path / "running", STUBBORN, run="running"))
    _, importing, running = gangs
    running.until(lambda gang: len(gang.lines) == 2, "sign of life of both tasks")
    agent = running.state.agent
    assert agent is not None
    task = running.pid("worker-0")
    [zygote] = [pid for pid in processes.descendants(agent) if task in processes.descendants(pid)]
    os.kill(zygote, signal.SIGSTOP)
    paused = [paused_zygote(gang) for gang in gangs]
    agents = [gang.state.agent for gang in gangs]
    everything = [pid for agent in agents if agent for pid in (agent, *processes.descendants(agent))]
    assert set(paused) < set(everything)

    assert importing.state.agent is not None
    os.kill(importing.state.agent, signal.SIGTERM)
    local_engine.stop(running.run, now=True)  # what Ctrl-C does when it comes twice
    done = oarlock("stop", "--now", "launching")
    assert (done.returncode, done.stdout) == (0, "launching stopped\n"), done.stderr
    assert [gang.end().state for gang in gangs] == ["stopped"] * 3
    until_gone(everything)


def test_the_limit_of_open_files_is_raised_and_one_that_is_too_low_is_told_at_once(
    oarlock: Command, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")

    def limited(hard: int) -> dict[str, Any]:
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))}

    done = oarlock("run", "-n", "32", "train.py", **limited(hard=400))
    assert done.returncode == 0, done.stderr
    done = oarlock("run", "-n", "64", "train.py", **limited(hard=400))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "oarlock: 64 tasks on one machine need 512 open files, and this machine allows 400 (ulimit -Hn); "
        "raise that limit, or run fewer tasks\n"
    )
    assert len(runs.all_runs()) == 1


@pytest.fixture
def open_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One that everybody may write to, with a home in it: pytest's own are closed to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        monkeypatch.setenv("OARLOCK_HOME", f"{folder}/home")
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_a_process_that_cannot_be_made_is_tried_again_and_costs_no_restart(open_folder: Path) -> None:
    """As a user of whom nobody else is, for the limit counts all of theirs, who may read our interpreter."""
    (open_folder / "program.py").write_text(WAITS)
    another = ["setpriv", "--reuid=54321", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    command = [str(SCRIPT), "run", "-n", "8", "program.py"]
    run = subprocess.Popen(
        [*another, "prlimit", "--nproc=7", *command],
        cwd=open_folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with run:
        found = eventually(lambda: [*open_folder.glob("home/runs/*/events.jsonl")], "record")
        eventually(lambda: "cannot start" in found[0].read_text(), "word of it")
        (open_folder / "go").touch()
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    [note] = [line for line in said.splitlines() if "cannot start" in line]
    assert "too many processes and threads; this user may have 7 (ulimit -u)" in note
    assert "restart" not in said
