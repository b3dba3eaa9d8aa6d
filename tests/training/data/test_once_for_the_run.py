"""`oarlock.data.once` with per="run": the chief, or worker 0, makes the folder; all others wait for it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.training.data import once
from tests.support.gangs import Gang

Start = Callable[..., Gang]

# The first maker hangs until it is killed.
MAKES = """
import os, threading, oarlock
me = oarlock.current()

def make(folder):
    assert not (folder / "half").exists(), "not cleared"
    (folder / "half").touch()
    print("making", flush=True)
    if me.generation == 1:
        threading.Event().wait()
    (folder / "whole").write_text("whole")

print("calls", flush=True)
print("has", (oarlock.data.once(me.data / "digits", make, per="run") / "whole").read_text())
"""


def test_the_leader_task_makes_it_and_is_killed_and_the_next_one_makes_it_anew(start: Start) -> None:
    gang = start(MAKES, roles={"worker": 3}, machines=2, limits={"restarts": 2})
    calls = [f"worker-{index}| calls" for index in range(3)]
    gang.until(lambda gang: {*calls, "worker-0| making"} <= set(gang.lines), "maker, and who waits for it")
    gang.kill("worker-0")
    assert gang.end().code == 0, gang.told()
    assert sorted(line for line in gang.lines if "has" in line) == [
        f"worker-{i}| has whole" for i in range(3)
    ]
    assert {line for line in gang.lines if "making" in line} == {"worker-0| making"}
    notes = [event["text"] for event in gang.of("note", generation=2)]
    assert any(
        re.fullmatch(r"worker-0: makes .*digits, for which the other tasks wait", note) for note in notes
    )


APART = """
import os, sys, oarlock
from pathlib import Path
me = oarlock.current()
sys.modules["oarlock.training.data.once"]._VISIBLE = 0.5  # the package has a function of this name
os.environ["DATA_DIR"] += f"-of-{me.index}"  # as where each machine has a disk of its own
oarlock.data.once(Path(os.environ["DATA_DIR"]) / "digits", lambda folder: None, per="run")
if me.index == 0:
    import threading
    threading.Event().wait()
"""


def test_a_machine_that_does_not_see_the_folder_says_so(start: Start) -> None:
    gang = start(APART, machines=2, limits={"restarts": 0})
    assert gang.end().code != 0
    said = "\n".join(gang.lines)
    assert re.search(
        r"worker-1\| FileNotFoundError: the chief has made .*data.*-of-1/digits, and this", said
    ), said
    assert "use per='machine' to make it on each of them" in said


FAILS = """
import oarlock

def make(folder):
    raise RuntimeError("no network")

oarlock.data.once(oarlock.current().data, make, per="run")
"""


def test_a_maker_that_fails_ends_the_run_with_its_own_words(start: Start) -> None:
    gang = start(FAILS, limits={"restarts": 0})
    state = gang.end()
    assert state.code == 1
    assert state.reason == "RuntimeError: no network", gang.told()
    assert "worker-0| RuntimeError: no network" in gang.lines


def test_without_a_launcher_it_is_made_here(tmp_path: Path) -> None:
    made: list[Path] = []
    assert once(tmp_path / "data", made.append, per="run") == tmp_path / "data"
    assert once(tmp_path / "data", made.append, per="run") == tmp_path / "data"
    assert made == [tmp_path / "data"]
    with pytest.raises(ValueError, match="once is per 'machine' or per 'run'"):
        once(tmp_path / "data", made.append, per="epoch")  # type: ignore[arg-type]


def test_under_another_launcher_the_mark_in_the_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def make(folder: Path) -> None:
        raise AssertionError("only rank 0 makes it")

    with pytest.raises(
        TimeoutError, match=r"waited 0.1 s for the chief, or worker 0, to make .*data; it has to"
    ):
        once(tmp_path / "data", make, per="run", wait=0.1)
    chief = threading.Thread(target=once, args=(tmp_path / "data", lambda folder: None))
    chief.start()
    once(tmp_path / "data", make, per="run", wait=60)
    chief.join()
