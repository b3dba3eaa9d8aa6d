"""What does being launched and reporting every step cost? Steps per second, against the bare program.

    .venv/bin/python bench/steps.py [--repeats N] [--json]

Ours: `oarlock run -n 2`, every step reported, the client watching. The peer: the same two processes spawned
plainly, without launcher and without reports. Both get the same thread pools.

A hundredth is less than a machine's mood changes in a minute, so the two are not run one after the other:
both are started, one is stopped (SIGSTOP, with client, agent and all) while the other steps, and they change
over five times a second. A pair's ratio is the median over its slices; each repeat is a fresh pair. What no
mood touches is measured beside it: the processor time that client, agent and zygote take.
"""

from __future__ import annotations

import os
import signal
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from arena import Arena, arena, oarlock_run, plainly, shared_cores
from question import Question, Row, Target, main, progress

from oarlock.system import processes

_TASKS = 2
_PROGRAMS = {"PyTorch DDP": "torch_ddp.py", "TensorFlow MultiWorkerMirrored": "tensorflow_mirrored.py"}
SLICES = 80  # of each side
_SLICE = 0.2  # seconds: two reports of each rank
_SETTLING = 0.03  # seconds after a change until caches and pipes are as they would be
ENDLESS = ("--steps", "1000000000")
Span = tuple[float, float]  # on the monotonic clock, which is the same in all processes


@dataclass(frozen=True)
class Pair:
    """Steps per second of both, slice by slice, and the launcher's share of one core meanwhile."""

    ours: list[float]
    peer: list[float]
    share: float

    @property
    def ratios(self) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.peer) if theirs]


def measure(repeats: int) -> list[Row]:
    return [row for name in _PROGRAMS for row in _rows(name, repeats)]


def _rows(name: str, repeats: int) -> list[Row]:
    pairs: list[Pair] = []
    for turn in range(repeats):
        progress(f"steps, {name}, pair {turn + 1} of {repeats}")
        pairs.append(_run_pair(_PROGRAMS[name]))
    ours = [median(pair.ours) for pair in pairs]
    peer = [median(pair.peer) for pair in pairs]
    low, _, high = quantiles([ratio for pair in pairs for ratio in pair.ratios])
    note = f"{1000 / median(peer):.1f} ms a step; half of all slices lie between {low:.3f} and {high:.3f}"
    target, ratios = Target(0.99, at_least=True), [median(pair.ratios) for pair in pairs]
    return [
        Row(name, "steps/s", ours, peer, "bare program", target, ratios, note),
        Row(f"{name}: client, agent, zygote", "% of a core", [100 * pair.share for pair in pairs]),
    ]


def _run_pair(program: str) -> Pair:
    env = shared_cores(_TASKS)
    with arena() as ours, arena() as peer:
        oarlock_run(ours, program, _TASKS, *ENDLESS, "--report", env=env)
        plainly(peer, program, _TASKS, *ENDLESS, env=env)
        ours.wait(lambda: ours.marks("first"), "first step")
        peer.wait(lambda: peer.marks("first"), "first step")
        time.sleep(1)
        signal_all(ours, signal.SIGSTOP)
        signal_all(peer, signal.SIGSTOP)
        used = _used_by_launcher(ours)
        mine, theirs = zip(*(alternate(ours, peer, turn) for turn in range(SLICES)))
        share = (_used_by_launcher(ours) - used) / (SLICES * (_SLICE + _SETTLING))
        return Pair(rates_in(ours, mine), rates_in(peer, theirs), share)


def alternate(ours: Arena, peer: Arena, turn: int) -> tuple[Span, Span]:
    """A slice of each. Who begins changes, or a machine that grows slower would favour one of them."""
    if turn % 2:
        return _step(ours), _step(peer)
    theirs = _step(peer)
    return _step(ours), theirs


def _step(place: Arena) -> Span:
    signal_all(place, signal.SIGCONT)
    began = time.monotonic() + _SETTLING
    time.sleep(_SLICE + _SETTLING)
    ended = time.monotonic()
    signal_all(place, signal.SIGSTOP)
    return began, ended


def signal_all(place: Arena, sig: int) -> None:
    for process in place.processes:
        for pid in (process.pid, *processes.descendants(process.pid)):
            os.kill(pid, sig)


def rates_in(place: Arena, spans: Iterable[Span]) -> list[float]:
    """Steps per second in each span, from the first step done in it to the last; a stalled one has none."""
    times = array("d", (place.folder / "times.0").read_bytes())
    times = times[1 : times.index(0.0, 1)]  # step 0 there is none, and behind the last one all is empty
    rates: list[float] = []
    for began, ended in spans:
        first, last = bisect_left(times, began), bisect_right(times, ended) - 1
        rates.append((last - first) / (times[last] - times[first]) if last > first else 0.0)
    return rates


def _used_by_launcher(place: Arena) -> float:
    """Seconds of processor time: all of the run's processes but its tasks."""
    client = place.processes[0].pid
    tasks = {int(place.marks(f"pid.{rank}")[0]) for rank in range(_TASKS)}
    own = [pid for pid in (client, *processes.descendants(client)) if pid not in tasks]
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in own) / 1e9


QUESTION = Question("steps", "Steps per second", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
