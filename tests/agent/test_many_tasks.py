"""Gangs of many processes, and machines that have no room for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import SCRIPT
from tests.support.gangs import Gang
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
        said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    [note] = [line for line in said.splitlines() if "cannot start" in line]
    assert "too many processes and threads; this user may have 7 (ulimit -u)" in note
    assert "restart" not in said
