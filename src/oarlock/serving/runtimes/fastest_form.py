"""The fastest form of a model: another form is used if it gives the same answers and is faster.

Both are called with the same warm-up inputs. Answers are the same if numbers differ by at most RELATIVE of
their size plus ABSOLUTE, and integers and texts not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.serving.runtimes import warm_up
from oarlock.serving.runtimes.runtime import ModelError, Runtime

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

RELATIVE, ABSOLUTE = 1e-3, 1e-5
_ROWS = (1, 16)
_ROUNDS = 30
_LONGEST = 0.5  # seconds for the rounds of one size; a slow model is called fewer times
_NOT_SLOWER = 1.05  # with many rows; with one row it must be faster

Note = Callable[[str], object]
Clock = Callable[[], float]


def choose(
    folder: Path,
    plain: Runtime,
    make_faster: Callable[[], Runtime] | None,
    note: Note,
    clock: Clock = time.perf_counter,
) -> Runtime:
    """Return the faster form if there is one and its answers are the same, else the plain one."""
    if make_faster is None:
        return plain
    batches = [inputs for rows in _ROWS if (inputs := warm_up.inputs(folder, plain.manifest, rows))]
    if not batches:
        return plain
    try:
        faster = make_faster()
    except ModelError as problem:
        note(f"{plain.form} is used: {problem}")
        return plain
    try:
        gains = []
        for inputs in batches:
            if reason := differing(plain.run(inputs), faster.run(inputs)):
                raise ModelError(f"{faster.form} gives different answers: {reason}")
            gains.append(_seconds(plain, inputs, clock) / _seconds(faster, inputs, clock))
    except ModelError as problem:
        note(f"{plain.form} is used: {problem}")
        faster.close()
        return plain
    if gains[0] <= 1 or min(gains) < 1 / _NOT_SLOWER:
        note(f"{plain.form} is used: {faster.form} is not faster")
        faster.close()
        return plain
    faster.form = f"{faster.form}, {gains[0]:.1f} times as fast as {plain.form}"
    plain.close()
    return faster


def differing(expected: Mapping[str, Array], found: Mapping[str, Array]) -> str:
    """Say where two answers differ; empty if they do not."""
    import numpy as np

    if expected.keys() != found.keys():
        return f"its outputs are {', '.join(found)}"
    for name, right in expected.items():
        other = found[name]
        if right.shape != other.shape or right.dtype != other.dtype:
            return f"{name!r} is {other.dtype} of shape {other.shape}, not {right.dtype} of {right.shape}"
        if right.dtype.kind != "f":
            if not np.array_equal(right, other):
                return f"{name!r} has other values"
        elif not np.allclose(other, right, RELATIVE, ABSOLUTE, equal_nan=True):
            apart = np.abs(other - right)
            known = apart[np.isfinite(apart)]
            return f"{name!r} differs" + (f" by up to {known.max():.2g}" if known.size else "")
    return ""


def _seconds(runtime: Runtime, inputs: Mapping[str, Array], clock: Clock) -> float:
    """The shortest of a few calls: other work on the machine only makes a call longer."""
    best, began = float("inf"), clock()
    for _ in range(_ROUNDS):
        start = clock()
        runtime.run(inputs)
        best = min(best, clock() - start)
        if clock() - began > _LONGEST:
            break
    return max(best, 1e-9)
