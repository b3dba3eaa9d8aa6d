"""A disk that hangs, or output that nobody reads: the agent goes on, counts what it drops, and says so."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from oarlock.agent.record.pod_output import Echo
from oarlock.agent.record.run_record import Record
from oarlock.cli.session.ask_agent import ask
from oarlock.run.run_state import RunState
from tests.support.gangs import DEADLINE, Gang
from tests.support.waiting import eventually

LINE = b"x" * 199 + b"\n"
CHUNK = LINE * 300
PROGRAM = """
import os, sys, time, oarlock
me = oarlock.current()
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
wait_for("go")
for step in range(1, 501):
    me.report(step, total=501)
    sys.stdout.write(("x" * 199 + "\\n") * 300)
sys.stdout.flush()
open(f"printed-{me.rank}", "w").close()
wait_for("end")
me.report(501, total=501)
"""


def test_output_that_nobody_reads_is_dropped_and_counted(tmp_path: Path) -> None:
    there, out = os.pipe()
    echo = Echo(leads=True, out=out)
    record = Record(tmp_path, RunState("run"), echo)
    echo.outlet.patience, record._disk.patience = 0.05, DEADLINE
    record.emit("run", job="job", tasks=["worker-0"])
    log = record.log(1, "worker-0")
    for _ in range(500):  # 30 MB
        log.feed(CHUNK)
    record.emit("note", text="an event")
    log.close()
    reader, read = _read_in_thread(there)
    assert echo.outlet.flush(DEADLINE)
    record.emit("generation", generation=1)
    assert echo.outlet.flush(DEADLINE)
    assert record._disk.flush(DEADLINE)
    os.close(out)
    reader.join()
    os.close(there)
    lines = b"".join(read).split(b"\n")
    came = sum(line == b"worker-0/1 | " + LINE[:-1] for line in lines)
    dropped = [note for note in record.state.notes if "standard output accepted none" in note]
    assert dropped == [f"{500 * 300 - came} lines were dropped: standard output accepted none for a while"]
    assert 0 < came < 500 * 300
    assert sum(line.startswith(b"::oarlock") for line in lines) == 4, "no event is dropped"
    assert (tmp_path / "logs" / "1" / "worker-0.log").read_bytes().count(b"\n") == 500 * 300, (
        "the disk took all"
    )


def test_a_log_that_moves_again_says_what_is_missing_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "logs" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "logs" / "1" / "worker-0.log")
    record = Record(tmp_path, RunState("run"))
    record._disk.patience = 0.05
    record.emit("run", job="job", tasks=["worker-0"])
    log = record.log(1, "worker-0")
    for _ in range(500):
        log.feed(CHUNK)
    record.emit("note", text="an event")
    assert "an event" not in (tmp_path / "events.jsonl").read_text()
    reader, read = _read_in_thread(os.open(tmp_path / "logs" / "1" / "worker-0.log", os.O_RDONLY))
    assert record._disk.flush(DEADLINE)
    log.feed(b"the next line\n")
    log.close()
    record.end("succeeded", 0)
    assert record._disk.flush(DEADLINE)
    reader.join()
    *lines, missing, after, empty = [line.partition(b" ")[2] for line in b"".join(read).split(b"\n")]
    assert (after, empty) == (b"the next line", b"")
    assert set(lines) == {LINE[:-1]}
    gone = 500 * 300 - len(lines)
    assert missing == b"oarlock: %d lines are missing here: the disk accepted none" % gone
    assert record.state.notes == [
        "an event",
        f"{gone} lines were dropped: the disk accepted none for a while",
    ]
    assert "an event" in (tmp_path / "events.jsonl").read_text()


def test_nothing_is_lost_where_the_disk_is_only_slow(tmp_path: Path) -> None:
    (tmp_path / "logs" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "logs" / "1" / "worker-0.log")
    record = Record(tmp_path, RunState("run"))
    record._disk.patience = DEADLINE
    log = record.log(1, "worker-0")
    keep = os.open(tmp_path / "logs" / "1" / "worker-0.log", os.O_RDWR)  # no end until all have written
    reader, read = _read_in_thread(os.open(tmp_path / "logs" / "1" / "worker-0.log", os.O_RDONLY))
    for _ in range(500):
        log.feed(CHUNK)
    log.close()
    assert record._disk.flush(DEADLINE)
    os.close(keep)
    reader.join()
    assert b"".join(read).count(LINE) == 500 * 300
    assert record.missing == {}


def test_a_run_goes_on_while_its_disk_hangs(home: Path, tmp_path: Path) -> None:
    """The leading agent answers, tasks take their steps, and nobody is fenced."""
    folder = tmp_path / "job"
    gang = Gang(folder, PROGRAM, machines=2)
    gang.until(lambda gang: len(gang.of("task")) == 2, "start")
    log = gang.run.path / "logs" / "1" / "worker-0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(log)
    (folder / "go").touch()
    printed = [folder / "printed-0", folder / "printed-1"]
    eventually(lambda: all(one.exists() for one in printed), "end of the output", DEADLINE)
    assert ask(gang.run, {"ask": "stacks"})["ok"]
    reader, read = _read_in_thread(os.open(log, os.O_RDONLY))
    (folder / "end").touch()
    eventually(lambda: not gang.run.is_held(), "end", DEADLINE)
    reader.join()
    final = gang.run.state()
    assert (final.state, final.restarts, final.generation) == ("succeeded", 0, 1)
    assert [task.step for task in final.tasks.values()] == [501, 501]
    assert any("lines were dropped: the disk accepted none" in note for note in final.notes)
    assert b"lines are missing here" in b"".join(read)


def _read_in_thread(fd: int) -> tuple[threading.Thread, list[bytes]]:
    read: list[bytes] = []

    def go() -> None:
        while piece := os.read(fd, 1 << 16):
            read.append(piece)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, read
