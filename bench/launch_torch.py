"""How long from typing the command to the first training step done? PyTorch DDP, two ranks, against torchrun.

    .venv/bin/python bench/launch_torch.py [--repeats N] [--json]

The very same program under both. The clock starts before the command is spawned; the program writes down when
rank 0's first step is done. With `--warm` it is the second run that counts: the first imports what it starts
from.
"""

from __future__ import annotations

from arena import Arena, oarlock_run, torchrun
from launching import KEPT, SECOND, alternate
from question import Question, Row, Target, main

_PROGRAM = "torch_ddp.py"
_RANKS = 2


def measure(repeats: int) -> list[Row]:
    taken = alternate({"ours": _ours, "kept": _kept, "torchrun": _peer}, repeats, again=["kept"])
    what, target = f"PyTorch DDP (gloo), {_RANKS} ranks", Target(0.45)
    return [
        Row(what, "s", taken["ours"], taken["torchrun"], "`torchrun`", target),
        Row(f"{what}, {SECOND}", "s", taken["kept"], taken["torchrun"], "`torchrun`", target),
    ]


def _ours(place: Arena) -> None:
    oarlock_run(place, _PROGRAM, _RANKS)


def _kept(place: Arena) -> None:
    oarlock_run(place, _PROGRAM, _RANKS, options=KEPT)


def _peer(place: Arena) -> None:
    torchrun(place, _PROGRAM, _RANKS)


QUESTION = Question("launch-torch", "Launch to first step, PyTorch", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
