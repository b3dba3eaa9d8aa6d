"""How long from typing the command to the first training step done? One worker, against `python program.py`.

    .venv/bin/python bench/launch_one.py [--repeats N] [--json]

The very same program under both, in turns. What one worker does not need, it need not wait for: restarts
import it later. What JAX compiled is kept for the next run. `bench/gpu.py --only start` asks the same on a
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena import Arena, oarlock_run, plainly
from launching import alternate
from question import Question, Row, Target, main

_PROGRAMS = {  # and the arguments of each
    "PyTorch": ("alone_torch.py",),
    "Keras `fit` on TensorFlow": ("observed_keras.py", "--steps", "100"),
    "JAX": ("alone_jax.py",),
    "JAX, 200 small compilations": ("small_jax.py",),
}
_AGAIN = {
    "JAX, from the second run on": ("alone_jax.py",),
    "JAX, 200 small compilations, from the second run on": ("small_jax.py",),
    "JAX, a step that takes a second to compile, from the second run on": ("compiled_jax.py",),
}


def measure(repeats: int) -> list[Row]:
    first = [_row(name, words, repeats) for name, words in _PROGRAMS.items()]
    return [*first, *(_row(name, words, repeats, ["ours"]) for name, words in _AGAIN.items())]


def _row(name: str, words: Sequence[str], repeats: int, again: Sequence[str] = ()) -> Row:
    program, *args = words

    def ours(place: Arena) -> None:
        oarlock_run(place, program, 1, *args)

    def bare(place: Arena) -> None:
        plainly(place, program, 1, *args)

    taken = alternate({"ours": ours, "bare": bare}, repeats, again)
    return Row(name, "s", taken["ours"], taken["bare"], "`python program.py`", Target(1.02))


QUESTION = Question("launch-one", "Launch to first step, one worker", measure, repeats=5)

if __name__ == "__main__":
    main([QUESTION], __doc__)
