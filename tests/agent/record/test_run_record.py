from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from oarlock.agent.record.run_record import Record
from oarlock.agent.record.task_log import LINE_LIMIT, Log
from oarlock.run.run_state import RunState
from tests.support import flushes


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path, RunState("run"))


def texts(tmp_path: Path) -> list[bytes]:
    raw = (tmp_path / "logs" / "1" / "worker-0.log").read_bytes()
    assert raw.endswith(b"\n")
    return [line.partition(b" ")[2] for line in raw[:-1].split(b"\n")]


def feed(record: Record, *pieces: bytes) -> None:
    log: Log = record.log(1, "worker-0")
    for piece in pieces:
        log.feed(piece)
    log.close()
    record.flush()


def test_lines_are_whole_however_they_arrive(record: Record, tmp_path: Path) -> None:
    feed(record, b"one\ntw", b"o\nthr", b"ee", b"\nlast without an end")
    assert texts(tmp_path) == [b"one", b"two", b"three", b"last without an end"]


def test_bytes_stay_as_they_came(record: Record, tmp_path: Path) -> None:
    feed(record, b"\xff\xfe\x00bar\r50%\r100%\x08\n\n")
    assert texts(tmp_path) == [b"\xff\xfe\x00bar\r50%\r100%\x08", b""]


def test_a_line_of_ours_stands_alone(record: Record, tmp_path: Path) -> None:
    """Also when a progress bar is being written: what it writes next is a line of its own."""
    log: Log = record.log(1, "worker-0")
    log.say("first")
    log.feed(b"done\nstep 1")
    log.say("ours")
    log.feed(b"\rstep 2")
    log.close()
    record.flush()
    assert texts(tmp_path) == [b"first", b"done", b"step 1", b"ours", b"\rstep 2"]


@pytest.mark.parametrize("chunk", [1 << 16, 1 << 22])
def test_an_endless_line_is_cut_and_says_so(record: Record, tmp_path: Path, chunk: int) -> None:
    line = os.urandom(1 << 20).replace(b"\n", b"?") * 3
    feed(record, *(line[start : start + chunk] for start in range(0, len(line), chunk)), b"\nshort\n")
    *pieces, short = texts(tmp_path)
    assert short == b"short"
    assert all(piece.endswith(b" [line continues]") for piece in pieces[:-1])
    assert b"".join(piece.removesuffix(b" [line continues]") for piece in pieces) == line
    assert max(map(len, pieces)) <= LINE_LIMIT + len(b" [line continues]")


def test_an_endless_bar_is_cut_after_one_of_its_states(record: Record, tmp_path: Path) -> None:
    bar = b"".join(b"\r%6d/100000 \xe2\x96\x88" % step for step in range(100_000))
    feed(record, *(bar[start : start + 70_000] for start in range(0, len(bar), 70_000)))
    *pieces, last = texts(tmp_path)
    assert all(piece.endswith(b"\r [line continues]") for piece in pieces)
    assert b"".join(piece.removesuffix(b" [line continues]") for piece in [*pieces, last]) == bar


def test_an_endless_bar_is_kept_within_the_limit(tmp_path: Path) -> None:
    record = Record(tmp_path, RunState("run"), limit=1 << 20)
    feed(record, *([b"\r 45%|####      | 45/100" * 3000] * 50))
    kept = sum(path.stat().st_size for path in tmp_path.glob("logs/1/*"))
    assert kept <= (1 << 20) + 2 * LINE_LIMIT


def test_every_line_has_its_time(record: Record, tmp_path: Path) -> None:
    feed(record, b"hello\n")
    raw = (tmp_path / "logs" / "1" / "worker-0.log").read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z hello\n", raw)


def test_a_full_disk_is_said_once_and_stops_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record = Record(tmp_path, RunState("run"))
    (tmp_path / "logs" / "1").mkdir(parents=True)
    (tmp_path / "logs" / "1" / "worker-0.log").symlink_to("/dev/full")
    feed(record, b"line\n", b"line\n", b"line\n")
    record.flush()
    assert capfd.readouterr().err.count("No space left on device") == 1
    record.emit("note", text="goes on")
    record.emit("note", text="and on")
    trouble = "the record could not be written (No space left on device): some lines are missing"
    assert record.state.notes == ["goes on", trouble, "and on"]


def test_the_end_is_the_verdict_on_disk_and_no_scratch_is_left(record: Record, tmp_path: Path) -> None:
    record.scratch("worker-1")
    record.end("failed", 7, task="worker-1", reason="exit code 7")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["state"], result["code"], result["failure"]["task"]) == ("failed", 7, "worker-1")
    assert not (tmp_path / "scratch").exists()


def test_the_verdict_survives_a_power_cut(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = flushes.recorded(monkeypatch)
    record.end("succeeded", 0)
    assert json.loads((tmp_path / "result.json").read_text())["state"] == "succeeded"
    assert seen[-3:] == flushes.durable(tmp_path / "result.json")
