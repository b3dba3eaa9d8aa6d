"""How long from typing the command to the first training step done? TensorFlow, against plain processes.

    .venv/bin/python bench/launch_tensorflow.py [--repeats N] [--json]

Keras 3 under MultiWorkerMirroredStrategy with 2 and 4 workers; TensorFlow has no launcher of its own, so
the peer is what people do: a process per worker, with TF_CONFIG set. The target counts against those
processes with nothing else set; they are also run with the thread pools that our agent gives its tasks, to
show what that alone is worth. With `--warm` it is the second run that counts: the first imports what it
starts from.
"""

from __future__ import annotations

from arena import Arena, oarlock_run, plainly, shared_cores
from launching import KEPT, SECOND, alternate
from question import Question, Row, Target, main

_PROGRAM = "tensorflow_mirrored.py"
_TARGETS = {2: Target(0.65), 4: Target(0.5)}


def measure(repeats: int) -> list[Row]:
    return [row for workers, target in _TARGETS.items() for row in _rows(workers, target, repeats)]


def _rows(workers: int, target: Target, repeats: int) -> list[Row]:
    def ours(place: Arena) -> None:
        oarlock_run(place, _PROGRAM, workers)

    def kept(place: Arena) -> None:
        oarlock_run(place, _PROGRAM, workers, options=KEPT)

    def plain(place: Arena) -> None:
        plainly(place, _PROGRAM, workers)

    def plain_with_shares(place: Arena) -> None:
        plainly(place, _PROGRAM, workers, env=shared_cores(workers))

    sides = {"ours": ours, "kept": kept, "plain": plain, "shares": plain_with_shares}
    taken = alternate(sides, repeats, again=["kept"])
    what = f"MultiWorkerMirrored, {workers} workers"
    return [
        Row(what, "s", taken["ours"], taken["plain"], "plain processes", target),
        Row(f"{what}, {SECOND}", "s", taken["kept"], taken["plain"], "plain processes", target),
        Row(what, "s", taken["ours"], taken["shares"], "plain processes, our thread pools"),
    ]


QUESTION = Question("launch-tensorflow", "Launch to first step, TensorFlow", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
