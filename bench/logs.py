"""How long until the end of a large log is on the screen, and in how much memory? How fast is much output?

    .venv/bin/python bench/logs.py [--repeats N] [--json]        BENCH_LOG_GB=5 BENCH_OUTPUT_MB=300

A run of two tasks whose logs are 5 GB of real lines, shown by `attach`, `logs -f --tail` and `logs --tail`,
beside `tail` on the same files. What a week of reports costs: a million events, folded by `status`. And
programs that print 300 MB as quickly as they can, followed by `run` into a file: beside a shell that pipes
the program into `cat`, and beside torchrun, which writes logs and prints them, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena import BIN, PROGRAMS, Arena, arena
from question import Question, Row, Target, main, progress

from oarlock.agent.record.log_segments import Logs
from oarlock.agent.record.task_log import timestamp
from oarlock.records.run_folder import RunFolder
from oarlock.system import free_ports

_BYTES = float(os.environ.get("BENCH_LOG_GB", "5")) * 1e9
_EVENTS = 1_000_000
_TASKS = ("worker-0", "worker-1")
_LAST = "the last line"
_POLL = 0.01  # seconds
_OUTPUT = int(os.environ.get("BENCH_OUTPUT_MB", "300"))
_SECOND, _MEMORY = Target(1.0, of="ours"), Target(100, of="ours")


def measure(repeats: int) -> list[Row]:
    with arena() as place:
        progress("writing logs")
        large = _make(place, "large", _BYTES / len(_TASKS), 0)
        week = _make(place, "week", 1000, _EVENTS)
        files = [str(large.path / "logs" / "1" / f"{task}.log") for task in _TASKS]
        oarlock = str(BIN / "oarlock")
        followed, ended = ["tail", "-n", "10", "-f", *files], ["tail", "-n", "10", *files]
        pairs = {
            "`attach`": ([oarlock, "attach", "large"], followed),
            "`logs -f --tail 10`": ([oarlock, "logs", "large", "-f", "--tail", "10"], followed),
            "`logs --tail 10`": ([oarlock, "logs", "large", "--tail", "10"], ended),
        }
        rows = []
        locks = [run.hold() for run in (large, week)]
        for name, (ours, peer) in pairs.items():
            progress(name)
            taken = [(_first(ours, place), _first(peer, place)) for _ in range(repeats)]
            against = f"`tail -n 10{' -f' if peer is followed else ''}`"
            seconds = [[one[side][0] for one in taken] for side in (0, 1)]
            memory = [[one[side][1] for one in taken] for side in (0, 1)]
            rows.append(Row(f"{name}: first screen", "s", seconds[0], seconds[1], against, _SECOND))
            if peer is followed:
                rows.append(Row(f"{name}: memory", "MB", memory[0], memory[1], against, _MEMORY))
        for verb in ("status", "attach"):
            progress(f"{verb} of a million events")
            alone = [_first([oarlock, verb, "week"], place, "worker-1") for _ in range(repeats)]
            rows.append(Row(f"`{verb}`, a million events", "s", [seconds for seconds, _ in alone]))
        rows.append(Row("`attach`, its memory", "MB", [peak for _, peak in alone], target=_MEMORY))
        for lock in locks:
            os.close(lock)
    return [*rows, *_volume(repeats)]


def _volume(repeats: int) -> list[Row]:
    """What one and two programs print, and then its end."""
    program, oarlock = PROGRAMS / "wordy.py", str(BIN / "oarlock")
    piped = ["sh", "-c", f"{sys.executable} {program} {_OUTPUT} | cat"]
    half = str(_OUTPUT // 2)
    alone, pairs, ends = [], [], []
    with arena() as place:
        tee = [str(BIN / "torchrun"), "--nproc-per-node", "2", "-r", "3", "-t", "3"]
        tee += [
            "--master-port",
            str(free_ports.free_ports(1)[0]),
            "--log-dir",
            str(place.folder / "torchrun"),
        ]
        for turn in range(repeats):
            progress(f"{_OUTPUT} MB of output, turn {turn + 1} of {repeats}")
            one, two = f"one-{turn}", f"two-{turn}"
            ours = _whole([oarlock, "run", "--name", one, str(program), str(_OUTPUT)], place)
            alone.append((ours, _whole(piped, place)))
            ours = _whole([oarlock, "run", "-n", "2", "--name", two, str(program), half], place)
            pairs.append((ours, _whole([*tee, str(program), half], place)))
            file = str(place.home / "runs" / one / "logs" / "1" / "worker-0.log")
            ours = _whole([oarlock, "logs", "--tail", "2", one], place)
            ends.append((ours, _whole(["tail", "-n", "2", file], place)))
    rows = []
    for what, taken, against in (
        (f"`run`: {_OUTPUT} MB from a program", alone, "`python PROGRAM \\| cat`"),
        (f"`run -n 2`: {_OUTPUT} MB from two", pairs, "`torchrun -r 3 -t 3`"),
        (f"`logs --tail 2` of {_OUTPUT} MB", ends, "`tail -n 2`"),
    ):
        seconds, memory = ([[one[side][figure] for one in taken] for side in (0, 1)] for figure in (0, 1))
        rows.append(Row(what, "s", seconds[0], seconds[1], against))
        rows.append(Row(f"{what}: memory", "MB", memory[0], memory[1], against, _MEMORY))
    return rows


def _whole(words: Sequence[str], place: Arena) -> tuple[float, float]:
    """Seconds until it ends, and the most memory it had, in MB; what it prints goes into a file."""
    began, peak = time.perf_counter(), 0
    with (place.folder / "printed").open("wb") as out:
        process = subprocess.Popen(words, env=place.env, stdout=out, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            peak = max(peak, _peak(process.pid))
            time.sleep(_POLL)
    assert process.returncode == 0, words
    return time.perf_counter() - began, peak / 1000


def _peak(pid: int) -> int:
    """The most memory of a process, in kB. Not ru_maxrss, which begins with that of whoever forks."""
    found = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()
    return int(found[0]) if found else 0  # one that has ended has none to show


def _make(place: Arena, name: str, size: float, reports: int) -> RunFolder:
    """The record of a run that seems to be under way, with that many bytes from each task."""
    run = RunFolder(place.home / "runs" / name)
    now = time.time()
    logs = Logs(run.path / "logs", None)
    stamp = timestamp(now)
    lines = "".join(
        f"{stamp} step {step} of many, loss {1 / step:.5f}, 12.3 it/s\n" for step in range(1, 20_001)
    )
    for task in _TASKS:
        log = logs.open(1, task)
        for _ in range(max(1, int(size / len(lines)))):
            log.append(lines.encode())
        log.append(f"{stamp} {_LAST}\n".encode())
        log.close()
    (run.path / "job.yaml").touch()
    with (run.path / "events.jsonl").open("w") as file:
        tasks = list(_TASKS)
        told: list[dict[str, Any]] = [
            {"kind": "run", "job": name, "tasks": tasks},
            {"kind": "agent", "pid": 1},
            {"kind": "generation", "generation": 1, "tasks": tasks},
        ]
        told += [{"kind": "task", "task": task, "state": "started", "pid": 2} for task in tasks]
        file.writelines(json.dumps({"t": now - reports, **event}) + "\n" for event in told)
        for step in range(reports):
            event = {"kind": "report", "task": tasks[step % 2], "step": step // 2, "loss": 0.5, "busy": 0.9}
            file.write(json.dumps({"t": now - reports + step, **event}) + "\n")
    return run


def _first(words: Sequence[str], place: Arena, awaited: str = _LAST) -> tuple[float, float]:
    """Seconds until it shows that, and the most memory it had by then, in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(words, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    shown = b""
    while awaited.encode() not in shown:
        piece = os.read(process.stdout.fileno(), 1 << 16)
        assert piece, f"{words} did not show it: {shown[-500:]!r}"
        shown += piece
    taken = time.perf_counter() - began
    peak = _peak(process.pid)
    process.terminate()
    process.wait()
    process.stdout.close()
    return taken, peak / 1000


QUESTION = Question("logs", "Large logs and much output", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
