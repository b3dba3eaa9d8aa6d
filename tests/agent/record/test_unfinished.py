"""What is shown of a line that has no end yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.agent.record import unfinished
from oarlock.agent.record.log_segments import listed
from oarlock.agent.record.pod_lines import TaskLine, parse
from oarlock.agent.record.pod_output import Echo
from oarlock.agent.record.run_record import Record
from oarlock.agent.record.unfinished import last_state
from oarlock.run.run_state import RunState

TICK = "✓".encode()


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (b"", b""),
        (b"name? ", b"name? "),
        (b"\r 1%\r 2%\r 3%", b" 2%\r 3%"),  # the last may be half drawn
        (b" 1%\r 2%\r 3%\r", b" 2%\r 3%"),
        (b" 1%\r\r", b" 1%"),
        (b"\r", b""),
        (b"done " + TICK, b"done " + TICK),
        (b"done " + TICK[:1], b"done "),
        (b"done " + TICK[:2], b"done "),
        (b"done \xf0\x9f\x9a", b"done "),
        (b"latin \xe9t\xe9 1", b"latin \xe9t\xe9 1"),
        (b"red \x1b", b"red "),
        (b"red \x1b[", b"red "),
        (b"red \x1b[1;3", b"red "),
        (b"red \x1b[1;31m", b"red \x1b[1;31m"),
        (b"title \x1b]0;half", b"title "),
        (b"title \x1b]0;half\x1b", b"title "),
        (b"title \x1b]0;all\x07", b"title \x1b]0;all\x07"),
        (b"x" * 5000, b"x" * 4096),
        (b"\b|\b/" * 3000, b"\b|\b/" * 1024),
        (b"\x1b[2K\x1b[G 50%" * 3000, b"\x1b[2K\x1b[G 50%" * 372),
    ],
)
def test_the_last_state_is_whole_and_small(line: bytes, state: bytes) -> None:
    assert last_state(line) == state


def test_a_reader_sees_it_until_it_has_read_further(tmp_path: Path) -> None:
    record = Record(tmp_path, RunState("run"))
    log = record.log(1, "worker-0")
    path = tmp_path / "logs" / "1" / "worker-0.log"
    log.feed(b"name? ")
    log.show()
    record.flush()
    assert (unfinished.read(path, 0), path.exists()) == (b"name? ", False)
    assert listed(path.parent) == {"worker-0": []}
    log.feed(b"Bob\n(Pdb) ")
    record.flush()
    size = path.stat().st_size
    assert unfinished.read(path, size) == b"", "the line that it was has ended"
    log.show()
    record.flush()
    assert (unfinished.read(path, size), unfinished.read(path, 0)) == (b"(Pdb) ", b"")
    log.feed(b"\n(Pdb) ")
    log.show()
    record.flush()
    assert unfinished.read(path, path.stat().st_size) == b"(Pdb) ", "a prompt appears again"
    log.close()
    record.flush()
    assert unfinished.read(path, path.stat().st_size) == b""
    assert [line.partition(b" ")[2] for line in path.read_bytes().splitlines()] == [
        b"name? Bob",
        b"(Pdb) ",
        b"(Pdb) ",
    ]


def test_a_pod_prints_it_as_a_line_that_is_not_whole(tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as out:
        record = Record(tmp_path, RunState("run"), Echo(leads=False, out=out.fileno()))
        log = record.log(2, "worker-1")
        log.feed(b"one\n 1%\r 2%")
        log.show()
        log.show()  # nothing new
        log.close()
        record.flush()
    printed = (tmp_path / "stdout").read_bytes().decode()
    assert [parse(line) for line in printed.split("\n")[:-1]] == [
        TaskLine("worker-1", 2, "one"),
        TaskLine("worker-1", 2, " 1%\r 2%", is_whole=False),
        TaskLine("worker-1", 2, " 1%\r 2%"),
    ]
