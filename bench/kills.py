"""A rank is killed in the middle of training: how long until the next step, and how often does it come?

    .venv/bin/python bench/kills.py [--repeats N] [--json]

SIGKILL to rank 1 while both step, until rank 0's first step of the next generation. PyTorch beside
torchrun, with its own monitor interval and with a short one; TensorFlow and JAX have no launcher that
restarts them. A kill after which nothing steps for half a minute counts as not recovered, and the next one
gets a fresh run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from arena import Arena, MeasurementError, arena, oarlock_run, torchrun
from question import Question, Row, Target, main, progress

_RANKS = 2
_ENDLESS = ("--steps", "1000000000")
_PATIENCE = 30.0  # seconds
_UNDER_WAY = 0.3  # seconds of steps before a kill


@dataclass
class Side:
    name: str
    start: Callable[[Arena], None]
    seconds: list[float] = field(default_factory=list)
    kills: int = 0

    @property
    def told(self) -> str:
        return f"{len(self.seconds)} of {self.kills} recovered"


def measure(repeats: int) -> list[Row]:
    torch = Side("oarlock, PyTorch", _ours("torch_ddp.py"))
    default = Side("torchrun", _torchrun())
    short = Side("torchrun --monitor-interval 0.1", _torchrun("--monitor-interval", "0.1"))
    tensorflow = Side("oarlock, TensorFlow", _ours("tensorflow_mirrored.py"))
    jax = Side("oarlock, JAX", _ours("jax_parallel.py"))
    _alternate([torch, default, short], repeats)
    _alternate([tensorflow, jax], repeats)
    return [
        _beside(torch, default, "`torchrun`"),
        _beside(torch, short, "`torchrun --monitor-interval 0.1`"),
        Row("PyTorch DDP", "s", torch.seconds, target=Target(0.2, of="ours")),
        Row(
            "TensorFlow",
            "s",
            tensorflow.seconds,
            target=Target(1.0, of="ours"),
            note=f"ours {tensorflow.told}",
        ),
        Row("JAX", "s", jax.seconds, target=Target(0.3, of="ours"), note=f"ours {jax.told}"),
    ]


def _beside(ours: Side, peer: Side, against: str) -> Row:
    note = f"ours {ours.told}, peer {peer.told}"
    return Row("PyTorch DDP", "s", ours.seconds, peer.seconds, against, Target(0.1), note=note)


def _ours(program: str) -> Callable[[Arena], None]:
    return lambda place: oarlock_run(place, program, _RANKS, *_ENDLESS)


def _torchrun(*options: str) -> Callable[[Arena], None]:
    more = ("--max-restarts", "100", *options)
    return lambda place: torchrun(place, "torch_ddp.py", _RANKS, *_ENDLESS, options=more)


def _alternate(sides: Sequence[Side], kills: int) -> None:
    """Two kills a turn: a fresh run for each would take too long, one run for all would not take turns."""
    while any(side.kills < kills for side in sides):
        for side in sides:
            progress(f"{side.name}: kill {side.kills + 1} of {kills}")
            _kill_in_one_run(side, min(2, kills - side.kills))


def _kill_in_one_run(side: Side, most: int) -> None:
    with arena() as place:
        side.start(place)
        place.wait(lambda: place.marks("first"), "first step")
        for generation in range(1, most + 1):
            side.kills += 1
            try:
                side.seconds.append(_kill(place, generation))
            except MeasurementError:
                return


def _kill(place: Arena, generation: int) -> float:
    """Seconds from the kill to the first step of the next generation."""
    time.sleep(_UNDER_WAY)
    [victim] = place.marks("pid.1")
    killed_at = time.time()
    os.kill(int(victim), signal.SIGKILL)
    place.wait(lambda: len(place.marks("first")) > generation, "step after the kill", _PATIENCE)
    return float(place.marks("first")[generation].split()[0]) - killed_at


QUESTION = Question("kills", "Kill to next step", measure, repeats=6)

if __name__ == "__main__":
    main([QUESTION], __doc__)
