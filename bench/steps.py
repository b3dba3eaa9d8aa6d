"""What does being launched and reporting every step cost? Steps per second, against the bare program.

    .venv/bin/python bench/steps.py [--repeats N] [--json]

Ours: `oarlock run -n 2`, every step reported, the client watching. The peer: the same two processes spawned
plainly, without launcher and without reports. Both get the same thread pools.

A hundredth is less than a machine's mood changes in a minute, so the two are not run one after the other:
both are started, one is stopped (SIGSTOP, with client, agent and all) while the other steps, and they change
over every half second. A pair's ratio is the median over its slices; each repeat is a fresh pair.
"""

from __future__ import annotations

import os
import signal
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from statistics import median, quantiles

from arena import Arena, arena, oarlock_run, plainly, shared_cores
from question import Question, Row, Target, main, progress

from oarlock.agent import processes

_TASKS = 2
_PROGRAMS = {"PyTorch DDP": "torch_ddp.py", "TensorFlow MultiWorkerMirrored": "tensorflow_mirrored.py"}
_SLICES = 20  # of each side
_SLICE = 0.5  # seconds: several reports fall into each
Span = tuple[float, float]  # on the monotonic clock, which is the same in all processes
_SETTLING = 0.05  # seconds after a change until caches and pipes are as they would be


def measure(repeats: int) -> list[Row]:
    return [_row(name, program, repeats) for name, program in _PROGRAMS.items()]


def _row(name: str, program: str, repeats: int) -> Row:
    pairs: list[list[tuple[float, float]]] = []
    for turn in range(repeats):
        progress(f"steps, {name}, pair {turn + 1} of {repeats}")
        pairs.append(_run_pair(program))
    ours = [median(mine for mine, _ in pair) for pair in pairs]
    peer = [median(theirs for _, theirs in pair) for pair in pairs]
    ratios = [median(mine / theirs for mine, theirs in pair) for pair in pairs]
    low, _, high = quantiles([mine / theirs for pair in pairs for mine, theirs in pair])
    note = f"{1000 / median(peer):.1f} ms a step; half of all slices lie between {low:.3f} and {high:.3f}"
    return Row(name, "steps/s", ours, peer, "bare program", Target(0.99, at_least=True), ratios, note)


def _run_pair(program: str) -> list[tuple[float, float]]:
    """Steps per second of both, slice by slice."""
    env = shared_cores(_TASKS)
    endless = ("--steps", "1000000000")
    with arena() as ours, arena() as peer:
        oarlock_run(ours, program, _TASKS, *endless, "--report", env=env)
        plainly(peer, program, _TASKS, *endless, env=env)
        ours.wait(lambda: ours.marks("first"), "first step")
        peer.wait(lambda: peer.marks("first"), "first step")
        time.sleep(1)
        _signal(ours, signal.SIGSTOP)
        _signal(peer, signal.SIGSTOP)
        slices = [_alternate(ours, peer, turn) for turn in range(_SLICES)]
        mine, theirs = zip(*slices)
        return list(zip(_rates(ours, mine), _rates(peer, theirs)))


def _alternate(ours: Arena, peer: Arena, turn: int) -> tuple[Span, Span]:
    """A slice of each. Who begins changes, or a machine that grows slower would favour one of them."""
    if turn % 2:
        return _step(ours), _step(peer)
    theirs = _step(peer)
    return _step(ours), theirs


def _step(place: Arena) -> Span:
    _signal(place, signal.SIGCONT)
    began = time.monotonic() + _SETTLING
    time.sleep(_SLICE + _SETTLING)
    ended = time.monotonic()
    _signal(place, signal.SIGSTOP)
    return began, ended


def _signal(place: Arena, sig: int) -> None:
    for process in place.processes:
        for pid in (process.pid, *processes.descendants(process.pid)):
            os.kill(pid, sig)


def _rates(place: Arena, spans: Iterable[Span]) -> list[float]:
    """Steps per second in each span, from the first step done in it to the last."""
    times = array("d", (place.folder / "times.0").read_bytes())
    times = times[1 : times.index(0.0, 1)]  # step 0 there is none, and behind the last one all is empty
    rates: list[float] = []
    for began, ended in spans:
        first, last = bisect_left(times, began), bisect_right(times, ended) - 1
        rates.append((last - first) / (times[last] - times[first]))
    return rates


QUESTION = Question("steps", "Steps per second", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
