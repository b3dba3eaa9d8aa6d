"""Output faster than anyone reads: clients stay small, pipes get all of it, terminals get the newest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

from oarlock.agent.record.log_segments import Logs, of
from oarlock.records import log_files
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail, Watch
from tests.support.commands import SCRIPT
from tests.support.small_programs import write
from tests.support.terminals import OpenTerminal

LINES = 400_000
PROGRAM = f"""
import sys
for start in range(0, {LINES}, 1000):
    sys.stdout.write("".join(f"{{number:8}} {{'x' * 90}}\\n" for number in range(start, start + 1000)))
"""
STAMP = "2026-01-01T00:00:00.000000Z"
MOST = 100 << 10  # KiB of memory: half of it is Python with rich
SKIPPED = re.compile(
    r"oarlock: skipped [\d.]+ MB of worker-0, to catch up: oarlock logs fast --task worker-0"
)


def test_a_pipe_gets_every_line_in_little_memory(home: Path, tmp_path: Path) -> None:
    """40 MB, by `run` and by `logs`."""
    write(tmp_path / "train.py", PROGRAM)
    for words in (["run", "--name", "fast", "train.py"], ["logs", "fast"]):
        with subprocess.Popen([SCRIPT, *words], cwd=tmp_path, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            status, expected = Path(f"/proc/{process.pid}/status"), 0
            for line in process.stdout:
                if line.startswith(b"worker-0 | "):
                    assert int(line.split()[2]) == expected
                    expected += 1
                    # Not ru_maxrss, which begins with the memory of whoever forks. Nor at the last line: with
                    # no more to come than a pipe holds, the process may have ended.
                    peak = status.read_text() if expected % 50_000 == 25_000 else ""
                    assert not peak or int(peak.split("VmHWM:")[1].split()[0]) < MOST, peak
        assert (expected, process.returncode) == (LINES, 0)


def test_a_terminal_skips_to_the_newest_and_says_so(
    terminal: OpenTerminal, home: Path, tmp_path: Path
) -> None:
    run = _recorded(home)
    lock = run.hold()  # as an agent has it: the run seems to be under way
    screen = terminal("logs", "-f", "--tail", "1", "fast")
    screen.until("the last line")
    with run.log_file(1, "worker-0").open("ab") as log:
        log.write(f"{STAMP} {'y' * 90}\n".encode() * 200_000)
        log.write(f"{STAMP} newest\n".encode())
    screen.until("worker-0 | newest")
    os.close(lock)
    assert screen.end() == 0
    assert SKIPPED.search(screen.shown), screen.shown[-3000:]
    assert len(screen.shown) < 5_000_000


def test_the_end_of_a_huge_log_is_found_from_its_end(home: Path) -> None:
    run = _recorded(home)
    with run.log_file(1, "worker-0").open("r+b") as log:
        log.truncate(50 << 30)  # sparse: zeros and no newline
        log.seek(0, os.SEEK_END)
        log.write(b"".join(f"\n{STAMP} {number}".encode() for number in range(3)) + b"\n")
    before = _read_so_far()
    watching = Watch(run)
    watching.skip(takes_in=False)
    shown = [block.data for block in log_files.read(watching, log_files.latest(run), 2)]
    assert shown == [b"1", b"2"]
    assert _read_so_far() - before < 2_000_000


def test_a_reader_that_catches_up_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = Logs(tmp_path, 1 << 20).open(1, "worker-0")
    reader = Tail(log.first)
    for number in range(60_000):
        log.append(b"%d %s\n" % (number, b"x" * (number % 40)))
        if number == 100:
            assert reader.catch_up(of(log.first), 1 << 16) == 0
            assert len(reader.lines()) == 101
    begun = reader.position
    skipped = reader.catch_up(of(log.first), 1 << 16)
    lines = reader.lines()
    first = int(lines[0].split()[0])
    assert [int(line.split()[0]) for line in lines] == [*range(first, 60_000)]
    assert skipped == sum(len(b"%d %s\n" % (n, b"x" * (n % 40))) for n in range(101, first))
    assert reader.position - begun - skipped < 1 << 17


def _recorded(home: Path) -> RunFolder:
    """The record of a run with one line of output."""
    run = RunFolder(home / "runs" / "fast")
    log = Logs(run.logs, None).open(1, "worker-0")
    log.append(f"{STAMP} the last line\n".encode())
    log.close()
    (run.path / "job.yaml").touch()
    told = {"t": time.time(), "kind": "run", "job": "fast", "tasks": ["worker-0"]}
    (run.path / "events.jsonl").write_text(json.dumps(told) + "\n")
    return run


def _read_so_far() -> int:
    """The bytes that this process has read."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])
