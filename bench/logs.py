"""How long until the end of a large log is on the screen, and in how much memory?

    .venv/bin/python bench/logs.py [--repeats N] [--json]        BENCH_LOG_GB=5

A run of two tasks whose logs are 5 GB of real lines, shown by `attach`, `logs -f --tail` and `logs --tail`,
beside `tail` on the same files. And what a week of reports costs: a million events, folded by `status`.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena import BIN, Arena, arena
from question import Question, Row, Target, main, progress

from oarlock.agent.record.log_segments import Logs
from oarlock.agent.record.task_log import timestamp
from oarlock.records.run_folder import RunFolder

_BYTES = float(os.environ.get("BENCH_LOG_GB", "5")) * 1e9
_EVENTS = 1_000_000
_TASKS = ("worker-0", "worker-1")
_LAST = "the last line"
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
    return rows


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
    # Not ru_maxrss, which begins with the memory of whoever forks. One that has ended has none to show.
    peak = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")[2].split()
    process.terminate()
    process.wait()
    process.stdout.close()
    return taken, int(peak[0]) / 1000 if peak else 0.0


QUESTION = Question("logs", "The end of a large log", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
