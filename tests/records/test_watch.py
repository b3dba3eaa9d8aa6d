"""Logs in segments and reading them: every line once, from either end, in little memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oarlock.agent.record.log_segments import Logs, of
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail, Watch

LIMIT = 1 << 14
STAMP = "2026-01-01T00:00:00.000000Z"


def test_a_reader_that_keeps_up_sees_every_line_once(tmp_path: Path) -> None:
    chance = _chance()
    log = Logs(tmp_path, LIMIT).open(1, "worker-0")
    reader = Tail(tmp_path / "1" / "worker-0.log")
    written: list[bytes] = []
    seen: list[bytes] = []
    while len(written) < 3000:
        numbers = range(len(written), len(written) + chance.randrange(30))
        batch = [b"%d %s" % (number, b"x" * chance.randrange(60)) for number in numbers]
        log.append(b"".join(line + b"\n" for line in batch))
        written += batch
        while True:
            seen += reader.lines(most=chance.randrange(1, 3000))
            if not reader.is_behind:
                break
    assert seen == written
    assert len(of(reader.path)) > 2
    assert reader.begins() > 0, "the oldest were dropped meanwhile"


def test_the_newest_are_kept_over_all_generations(tmp_path: Path) -> None:
    logs = Logs(tmp_path, LIMIT)
    for generation in (1, 2, 3):
        log = logs.open(generation, "worker-0")
        for number in range(250):
            log.append(b"%d %d %s\n" % (generation, number, b"x" * 20))
            assert _size(tmp_path, "worker-0") <= LIMIT + 40
        log.close()
    other = logs.open(3, "worker-1")
    other.append(b"not concerned\n")
    paths = sorted(tmp_path.glob("*/worker-0*.log"), key=_place)
    kept = [line.split()[:2] for path in paths for line in path.read_text().splitlines()]
    assert kept[-250:] == [["3", str(number)] for number in range(250)]
    assert len(kept) > 300
    assert kept == sorted(kept, key=lambda line: (int(line[0]), int(line[1])))
    assert logs.dropped["worker-0"] > 0
    assert "worker-1" not in logs.dropped


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    """Of a task that starts again, and of an agent that was replaced: it finds what others have written."""
    for number in range(40):
        log = Logs(tmp_path, LIMIT).open(1, "worker-0")
        log.append(b"%d %s\n" % (number, b"x" * 1000))
        log.close()
    reader = Tail(tmp_path / "1" / "worker-0.log")
    reader.skip()
    numbers = [int(line.split()[0]) for line in b"".join(reader.before()).splitlines()]
    assert numbers == list(range(40 - len(numbers), 40))
    assert LIMIT / 2 < _size(tmp_path, "worker-0") <= LIMIT + 1100


def test_a_reader_that_lags_behind_passes_over_what_was_dropped(tmp_path: Path) -> None:
    chance = _chance()
    log = Logs(tmp_path, LIMIT).open(1, "worker-0")
    reader = Tail(tmp_path / "1" / "worker-0.log")
    seen: list[int] = []
    for number in range(3000):
        log.append(b"%d %s\n" % (number, b"x" * 40))
        if chance.random() < 0.01:
            seen += [int(line.split()[0]) for line in reader.lines(most=2000)]
    while lines := reader.lines():
        seen += [int(line.split()[0]) for line in lines]
    assert seen == sorted(set(seen))
    assert seen[-100:] == list(range(2900, 3000))


@pytest.mark.parametrize("count", [0, 1, 7, 80, 10_000])
def test_reading_from_the_end(tmp_path: Path, count: int) -> None:
    log = Logs(tmp_path, 1 << 20).open(1, "worker-0")
    lines = [b"%d %s" % (number, b"x" * (number * 37 % 5000)) for number in range(300)]
    for line in lines:
        log.append(line + b"\n")
    reader = Tail(tmp_path / "1" / "worker-0.log")
    reader.skip()
    kept = b"".join(reader.before()).split(b"\n")[:-1]
    assert kept == lines[-len(kept) :]
    assert reader.last(count) == kept[len(kept) - min(count, len(kept)) :]
    assert reader.lines() == []
    log.append(b"new\n")
    assert reader.lines() == [b"new"]


def test_half_a_line_at_the_end_comes_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"one\ntw")
    reader = Tail(path)
    reader.skip()
    assert (list(reader.before()), reader.last(5), reader.lines()) == ([b"one\n"], [b"one"], [])
    with path.open("ab") as file:
        file.write(b"o\n")
    assert reader.lines() == [b"two"]


def test_a_watcher_gets_much_output_in_pieces_and_all_of_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    for task in ("worker-0", "worker-1"):
        log = Logs(run.path / "logs", None).open(1, task)
        log.append(b"".join(f"{STAMP} {number}\n".encode() for number in range(60_000)))
    (run.path / "job.yaml").touch()
    (run.path / "events.jsonl").touch()
    found = Watch(run).follow(run.is_held)
    looks = [[line for block in output for line in block.lines()] for _, output in found]
    assert max(map(len, looks)) < 60_000
    for task in ("worker-0", "worker-1"):
        said = [line.text for look in looks for line in look if line.task == task]
        assert said == [str(number) for number in range(60_000)]


@pytest.mark.parametrize("words", [["attach"], ["logs", "-f", "--tail", "3"]])
def test_what_shows_the_end_reads_only_the_end(home: Path, words: list[str]) -> None:
    """60 MB, which took five times that."""
    run = RunFolder(home / "runs" / "large")
    log = Logs(run.path / "logs", None).open(1, "worker-0")
    line = f"{STAMP} step 1 loss 0.1234 and some more words\n".encode()
    for _ in range(60):
        log.append(line * (1_000_000 // len(line)))
    log.append(f"{STAMP} the last line\n".encode())
    (run.path / "job.yaml").touch()
    told = {"t": time.time(), "kind": "run", "job": "large", "tasks": ["worker-0"]}
    (run.path / "events.jsonl").write_text(json.dumps(told) + "\n")
    lock = run.hold()
    script = Path(sys.executable).with_name("oarlock")
    with subprocess.Popen([script, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for shown in process.stdout:
            if "the last line" in shown:
                break
        else:
            pytest.fail("it did not show the end")
        # Not ru_maxrss, which begins with the memory of whoever forks.
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
    os.close(lock)
    peak = int(status.split("VmHWM:")[1].split()[0])
    assert peak < 100 << 10, f"{peak} KiB"


def _size(folder: Path, task: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*/{task}*.log"))


def _place(path: Path) -> tuple[int, int]:
    start = path.name.split(".")[1]
    return int(path.parent.name), int(start) if start.isdecimal() else 0


def _chance() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)
