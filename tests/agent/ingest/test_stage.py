"""The ingest stage of real runs: once for all runs, repeated when it dies, never half used."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

from oarlock.engines.local import local_engine
from oarlock.system import processes
from tests.support.gangs import Gang, is_running
from tests.support.soaking import moments
from tests.support.waiting import eventually

INGEST = """
import os, pathlib, sys
data = pathlib.Path(os.environ["DATA_DIR"])
assert not list(data.iterdir()), "what an ingest that died has left"
with open("calls", "a") as calls:
    calls.write("begun\\n")
for number in range(50):
    (data / f"part-{number:02}").write_text("x" * 100)
    while number == 25 and pathlib.Path("wait").exists():
        pass
    while number == 25 and pathlib.Path("die").exists():
        pathlib.Path("die").unlink()
        os.kill(os.getpid(), 9)
with open("calls", "a") as calls:
    calls.write("done\\n")
"""
TRAIN = """
import oarlock
parts = sorted(path.name for path in oarlock.current().data.glob("part-*"))
assert len(parts) == 50, parts
print("trained on", len(parts))
"""


def gang(folder: Path, run: str | None = None, program: str = INGEST, **ingest: object) -> Gang:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ingest.py").write_text(program)
    return Gang(folder, TRAIN, run=run, ingest={"program": "ingest.py", **ingest})


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


def test_it_runs_once_and_later_runs_find_its_data(home: Path, tmp_path: Path) -> None:
    first = gang(tmp_path)
    assert first.end().state == "succeeded", first.told()
    assert calls(tmp_path) == ["begun", "done"]
    assert [line for line in first.lines if "trained on 50" in line]
    assert first.state.tasks["ingest-0"].state == "finished"
    assert next(iter(first.state.tasks)) == "worker-0"
    states = [event["task"] for event in first.of("task") if event["state"] == "started"]
    assert states[-2:] != ["ingest-0", "ingest-0"], "it ran after the training had begun"
    mark = json.loads((Path(first.run.spec().folders["data"]) / ".ingest.json").read_text())
    assert (mark["run"], mark["files"], mark["bytes"]) == (first.run.name, 50, 5000)

    second = gang(tmp_path)
    assert second.end().state == "succeeded", second.told()
    assert calls(tmp_path) == ["begun", "done"]
    assert f"ingest: done by {first.run.name}" in second.state.notes[0]

    third = gang(tmp_path, when="always")
    assert third.end().state == "succeeded", third.told()
    assert calls(tmp_path) == ["begun", "done"] * 2

    changed = gang(tmp_path, program=INGEST + "\n# another program, so other data")
    assert changed.end().state == "succeeded", changed.told()
    assert calls(tmp_path) == ["begun", "done"] * 3
    assert changed.run.spec().folders["data"] != first.run.spec().folders["data"]


def test_two_runs_that_need_the_same_data_wait_for_one(home: Path, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    first = gang(tmp_path)
    first.until(lambda run: (tmp_path / "calls").exists(), "the ingest")
    second = gang(tmp_path)
    second.until(lambda run: run.state.notes, "the second run to wait")
    assert second.state.notes == [f"ingest: waiting for {first.run.name}, which prepares the same data"]
    (tmp_path / "wait").unlink()
    for run in (first, second):
        assert run.end().state == "succeeded", run.told()
    assert calls(tmp_path) == ["begun", "done"]
    data = Path(first.run.spec().folders["data"])
    assert [path.name for path in data.parent.iterdir()] == [data.name]


def test_what_is_left_of_an_ingest_that_was_killed_at_its_end_goes_with_the_next_run(
    home: Path, tmp_path: Path
) -> None:
    first = gang(tmp_path)
    assert first.end().state == "succeeded", first.told()
    data = Path(first.run.spec().folders["data"])
    work = data.with_name(f".{data.name}.ingest")
    assert not work.exists()
    (work / "sources").mkdir(parents=True)  # the data was in its place, and the sources not deleted
    (work / "sources" / "large").write_text("x")
    second = gang(tmp_path)
    assert second.end().state == "succeeded", second.told()
    eventually(lambda: not work.exists(), "end of the leftovers", 60)
    assert calls(tmp_path) == ["begun", "done"]
    assert len(list(data.iterdir())) == 51


def test_a_task_that_is_killed_runs_again_from_the_start(home: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("die").touch()
    run = gang(tmp_path)
    assert run.end().state == "succeeded", run.told()
    assert calls(tmp_path) == ["begun", "begun", "done"]
    assert "it runs again" in run.state.notes[0]


def test_its_failure_ends_the_run_in_its_own_words(home: Path, tmp_path: Path) -> None:
    run = gang(tmp_path, program="raise RuntimeError('the archive is empty')")
    state = run.end()
    assert (state.state, state.code) == ("failed", 1)
    assert state.failure is not None
    assert (state.failure.task, state.failure.message) == ("ingest-0", "the archive is empty")
    assert state.failure.where == f"{tmp_path}/ingest.py:1"
    assert not run.of("generation")

    run = gang(tmp_path / "code", program="raise SystemExit(7)")
    assert run.end().code == 7

    (tmp_path / "sources").mkdir()
    run = Gang(tmp_path / "sources", TRAIN, ingest={"sources": {"all": "missing.csv"}})
    state = run.end()
    assert state.failure is not None
    assert state.failure.type == "FetchError"
    assert "missing.csv" in str(state.failure.message)


def test_a_stop_ends_it_and_leaves_no_process(home: Path, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    run = gang(tmp_path)
    run.until(lambda run: (tmp_path / "calls").exists(), "the ingest")
    pid = run.pid("ingest-0")
    assert run.state.state == "ingesting"
    local_engine.stop(run.run)
    assert run.end().state == "stopped"
    eventually(lambda: not is_running(pid), "the end of the ingest")


def test_sources_are_fetched_and_are_the_data_where_there_is_no_program(home: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n")
    print_it = "import oarlock; print(sorted(oarlock.current().data.iterdir())[-1].read_text())"
    run = Gang(tmp_path, print_it, ingest={"sources": {"all.csv": "table.csv"}})
    assert run.end().state == "succeeded", run.told()
    assert [line for line in run.lines if line.startswith("worker-0| a,b")]
    alone = Gang(
        tmp_path, "raise SystemExit('it trains')", ingest={"sources": {"all.csv": "table.csv"}, "alone": True}
    )
    assert alone.end().state == "succeeded", alone.told()


def test_agents_killed_at_random_moments_never_leave_half_of_the_data(home: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    run = gang(tmp_path)
    data = Path(run.run.spec().folders["data"])
    for kill in range(1, moments(2) + 1):
        run.until(lambda run, kill=kill: len(run.of("agent")) == kill, "the next agent")  # type: ignore[misc]
        if draw.random() < 0.7:  # else as soon as it has begun
            part = data.with_name(f".{data.name}.ingest") / "data" / f"part-{draw.randrange(50):02}"
            run.until(lambda _, part=part: part.exists() or (data / ".ingest.json").exists(), str(part))  # type: ignore[misc]
        run.look()
        if run.state.is_final:
            break
        assert run.state.agent is not None
        processes.send(run.state.agent, signal.SIGKILL)
        run.end()
        if run.state.is_final:
            break
        local_engine.resume(run.run)
    assert run.end().state == "succeeded", run.told()
    assert calls(tmp_path)[-1] == "done"
    assert len(list(data.iterdir())) == 51
