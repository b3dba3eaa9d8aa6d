from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.engines.local import local_engine
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.system import machine_id
from tests.support.waiting import eventually


def fill(draft: RunFolder) -> None:
    (draft.path / "job.yaml").write_text("name: x\n")
    (draft.path / "events.jsonl").write_text('{"t":1,"kind":"run","job":"x","tasks":["worker-0"]}\n')


def test_a_new_run_has_a_name_of_its_own(home: Path) -> None:
    one, two = runs.create("mnist", fill), runs.create("mnist", fill)
    assert one.name != two.name
    assert one.name.startswith("mnist-")
    assert len(one.name) == len("mnist-abcd")


def test_a_run_that_could_not_be_filled_is_never_seen(home: Path) -> None:
    def fail(draft: RunFolder) -> None:
        fill(draft)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        runs.create("mnist", fail)
    assert runs.all_runs() == []
    assert list((home / "runs").iterdir()) == []


def test_a_taken_name_is_refused(home: Path) -> None:
    runs.create("x", fill, name="mine")
    with pytest.raises(OarlockError, match="there is a run called mine"):
        runs.create("x", fill, name="mine")


def test_no_name_means_the_latest(home: Path) -> None:
    old, new = runs.create("x", fill), runs.create("x", fill)
    os.utime(old.path / "job.yaml", (1, 1))
    assert runs.find(None) == new
    assert [run.name for run in runs.all_runs()] == [new.name, old.name]


def test_the_beginning_of_a_name_is_enough_if_it_is_clear(home: Path) -> None:
    run = runs.create("x", fill, name="mnist-abcd")
    runs.create("x", fill, name="other-abcd")
    assert runs.find("mn") == run
    runs.create("x", fill, name="mnist-efgh")
    with pytest.raises(UnknownRun, match="could be"):
        runs.find("mn")


def test_an_unknown_name_says_where_to_look(home: Path) -> None:
    with pytest.raises(UnknownRun, match="no runs yet"):
        runs.find(None)
    runs.create("x", fill)
    with pytest.raises(UnknownRun, match="oarlock ps"):
        runs.find("nothing")


def test_a_run_nobody_holds_that_did_not_end_is_lost(home: Path) -> None:
    run = runs.create("x", fill)
    assert run.state().state == "lost"
    held = run.hold()
    assert run.state().state == "pending"
    os.close(held)
    assert run.state().state == "lost"


def test_a_held_run_cannot_be_held_twice(home: Path) -> None:
    run = runs.create("x", fill)
    held = run.hold()
    with pytest.raises(OarlockError, match="is running"):
        run.hold(seconds=0.05)
    os.close(held)


def test_somebodys_look_does_not_refuse_the_hold(home: Path) -> None:
    run = runs.create("x", fill)
    os.close(run.hold())
    with (run.path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert run.is_held() is False
    os.close(run.hold())


def test_a_held_run_is_not_deleted(home: Path) -> None:
    run = runs.create("x", fill)
    held = run.hold()
    with pytest.raises(OarlockError, match="is running"):
        run.delete()
    assert runs.all_runs() == [run]
    os.close(held)


def test_who_waits_for_the_lock_of_a_run_that_is_deleted_learns_it(home: Path) -> None:
    """Else it would have the lock of a file that is gone, and start an agent that nobody sees."""
    run = runs.create("x", fill)
    held = run.hold()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(run.hold, 60)
        _until_waited_for(run)
        run.path.rename(run.path.with_name(".x.deleted"))
        os.close(held)
        with pytest.raises(UnknownRun, match="was deleted"):
            os.close(waiting.result(60))
    with pytest.raises(UnknownRun, match="was deleted"):
        run.hold()


def _until_waited_for(run: RunFolder) -> None:
    """This process has opened the lock twice."""
    lock = str(run.path / "lock")

    def opened() -> int:
        links = list(Path("/proc/self/fd").iterdir())
        return sum(os.path.realpath(link) == lock for link in links)

    eventually(lambda: opened() == 2, "the lock to be waited for")


def test_of_a_delete_and_a_hold_one_wins(home: Path) -> None:
    """From the same moment on, often: whoever has the lock finds the run in its place."""
    for _ in range(50):
        run = runs.create("x", fill)
        barrier = threading.Barrier(2)

        def hold(run: RunFolder = run, barrier: threading.Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                return run.hold(seconds=60)
            except UnknownRun:
                return None

        def delete(run: RunFolder = run, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                run.delete()
            except OarlockError:
                assert run.path.exists()

        with ThreadPoolExecutor() as threads:
            deleting, holding = threads.submit(delete), threads.submit(hold)
            held = holding.result(120)
            assert run.path.exists() == (held is not None)
            if held is not None:
                os.close(held)
            deleting.result(120)


class TestOnANetworkFileSystem:
    """Which cannot be mounted here: what the kernel says there is put in its mouth."""

    @pytest.fixture
    def run(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
        def announced(draft: RunFolder) -> None:
            fill(draft)
            event = {"t": time.time(), "kind": "agent", "pid": os.getpid(), "host": "node7"}
            with (draft.path / "events.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")
            (draft.path / "lock").touch()

        monkeypatch.setattr(machine_id, "is_shared", lambda path: True)
        return runs.create("x", announced, name="theirs")

    def test_a_run_of_another_machine_is_not_lost_and_not_ours(self, run: RunFolder) -> None:
        assert run.state().state == "starting"
        assert run.is_running()
        for act in (run.hold, run.delete, lambda: local_engine.stop(run), lambda: local_engine.resume(run)):
            with pytest.raises(OarlockError, match="theirs runs on node7"):
                act()
        shutil.rmtree(run.path)

    def test_its_place_can_be_taken_where_it_is_gone(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OARLOCK_HOST", "node7")
        assert run.state().state == "lost"
        run.delete()

    @pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
    @pytest.mark.parametrize("has_title", [True, False])
    def test_without_locks_the_agents_process_tells(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, code: int, has_title: bool
    ) -> None:
        """By its command line, or if there is no room for a long path, by the lock that it has open."""

        def refuse(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setenv("OARLOCK_HOST", "node7")
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert run.state().state == "lost", "this process is no agent"
        words = [sys.executable, "-c", "input()", *(["oarlock.agent", str(run.path)] if has_title else [])]
        with run.lock_file.open() as lock:
            fds = [] if has_title else [lock.fileno()]
            agent = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=fds)
        with agent:
            event = {"t": time.time(), "kind": "agent", "pid": agent.pid, "host": "node7"}
            with (run.path / "events.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")
            eventually(run.is_held, "the agent to be known")
            with pytest.raises(OarlockError, match="is running"):
                run.delete()
            agent.communicate(b"\n")
        run.delete()


def test_a_deleted_run_is_gone(home: Path) -> None:
    run = runs.create("x", fill)
    run.delete()
    assert runs.all_runs() == []
    assert list((home / "runs").iterdir()) == []
    with pytest.raises(UnknownRun, match="was deleted"):  # by a verb that found it just before
        run.spec()


def test_what_a_killed_client_left_is_removed_a_day_later(home: Path) -> None:
    runs.create("x", fill)
    drafts = [home / "runs" / name for name in (".new-old", ".new-young")]
    for draft in drafts:
        (draft / "x-abcd").mkdir(parents=True)
    yesterday = time.time() - 2 * 86400
    os.utime(drafts[0], (yesterday, yesterday))
    runs.create("x", fill)
    assert [draft.exists() for draft in drafts] == [False, True]


def test_runs_that_are_deleted_while_they_are_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One before it is looked at, one after."""
    for name in ("early", "late", "other"):
        runs.create("x", fill, name=name)
    listed = list((home / "runs").iterdir())
    RunFolder(home / "runs" / "early").delete()

    def listing(_: Path) -> Iterator[Path]:
        for path in listed:
            yield path
            if path.name == "late":
                RunFolder(path).delete()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", listing)
        assert {run.name for run in runs.all_runs()} - {"late"} == {"other"}


def test_who_has_the_lock_removes_a_run_and_nobody_else_does(home: Path) -> None:
    run = runs.create("mine", lambda draft: (draft.path / "job.yaml").touch(), "mine")
    held = run.hold()
    try:
        with pytest.raises(OarlockError, match="mine is running"):
            run.delete()
        run.remove()
    finally:
        os.close(held)
    assert not list((home / "runs").iterdir())
