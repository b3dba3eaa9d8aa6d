"""What does a checkpoint cost? 512 MiB of state: how long a save stands still, how much memory it takes.

    .venv/bin/python bench/checkpoints.py [--repeats N] [--json]

Each way runs in a process of its own, in turns. The stall is the time until the program may make its next
step. Memory is the proportional size (PSS) of the program and all that it starts, above what it was before
its first save; taken in another process, because to look at it costs time. The rate is that of 30 s that
begin with a save, beside that of the same 30 s when all is written: machines are quicker now and slower then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from question import Question, Row, Target, main, progress

from oarlock.system import processes

_MIB = 512
_PROGRAM = Path(__file__).parent / "programs" / "saving.py"
_PEERS = {"torch": ("torch.save", "dcp.async_save"), "tensorflow": ("tf.train.Checkpoint.write",)}
_LOOK = 0.02  # seconds between two looks at the memory
_ENOUGH = 300.0


def measure(repeats: int) -> list[Row]:
    rows = []
    for framework, peers in _PEERS.items():
        found: dict[str, list[dict[str, Any]]] = {}
        for turn in range(repeats):
            for way in (framework, *peers):
                progress(f"checkpoints, {way}, {turn + 1} of {repeats}")
                found.setdefault(way, []).append({**_run(way), "memory": _memory(way)})
        rows += _rows(framework, peers, found)
    rows.append(_rate(repeats))
    return rows


def _rows(framework: str, peers: Sequence[str], found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    def all_of(way: str, what: str) -> list[float]:
        return [seconds for told in found[way] for seconds in told[what]]

    rows = []
    for peer in peers:
        target = Target(0.05, of="ours")
        disk = [f"{_median(all_of(way, 'behind')):.2g} s" for way in (framework, peer)]
        note = f"until it is on the disk: {disk[0]}, theirs {disk[1]}"
        rows.append(
            Row(
                f"{framework}: stall",
                "s",
                all_of(framework, "stalls"),
                all_of(peer, "stalls"),
                f"`{peer}`",
                target,
                note=note,
            )
        )
        memory = [told["memory"] for told in found[framework]]
        theirs = [told["memory"] for told in found[peer]]
        rows.append(
            Row(
                f"{framework}: extra memory, of the state",
                "x",
                memory,
                theirs,
                f"`{peer}`",
                Target(1.1, of="ours"),
            )
        )
    after = [later / told["step"] for told in found[framework] for later in told["after"]]
    rows.append(Row(f"{framework}: the step after a save, of a usual one", "x", after))
    return rows


def _rate(repeats: int) -> Row:
    progress("checkpoints, steps per second")
    told = [_run("torch", "--seconds", "30") for _ in range(max(1, repeats // 3))]
    with_saves = [rate for one in told for rate in one["with"]]
    without = [rate for one in told for rate in one["without"]]
    return Row(
        "torch: a save every 30 s",
        "steps/s",
        with_saves,
        without,
        "no saves",
        Target(0.97, at_least=True),
        [mine / bare for mine, bare in zip(with_saves, without)],
    )


def _run(way: str, *more: str) -> dict[str, Any]:
    process = _start(way, *more)
    try:
        told: dict[str, Any] = json.loads(process.communicate(timeout=_ENOUGH)[0].splitlines()[-1])
    finally:
        process.kill()
        process.wait()
    return told


def _memory(way: str) -> float:
    """Of the state."""
    process = _start(way)
    assert process.stdout is not None
    guard = threading.Timer(_ENOUGH, process.kill)
    guard.start()
    for line in process.stdout:
        if line.startswith("READY"):
            break
    before, most, done = _pss(process.pid), [0.0], threading.Event()
    looking = threading.Thread(target=_look, args=(process.pid, most, done))
    looking.start()
    process.stdout.read()
    done.set()
    looking.join()
    process.wait()
    guard.cancel()
    return (most[0] - before) / _MIB


def _start(way: str, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(_PROGRAM), way, "--mib", str(_MIB), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _look(pid: int, most: list[float], done: threading.Event) -> None:
    """What two looks agree on: of two processes one after the other is looked at, and a page that both begin
    to share in between would count one and a half times."""
    last = 0.0
    while not done.wait(_LOOK):
        now = _pss(pid)
        most[0], last = max(most[0], min(last, now)), now


def _pss(pid: int) -> float:
    """MiB of a process and all below it."""
    total = 0
    for one in (pid, *processes.descendants(pid)):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


QUESTION = Question("checkpoints", "What a checkpoint costs", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
