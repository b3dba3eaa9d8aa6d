"""Operations and tokens per second, and the share of what the GPUs can do (MFU), from reported steps.

A program says once how many operations and tokens one step of this task takes; the rest follows from the time
between reported steps. Nothing waits for the GPU: a program may report a step that its GPU has not finished,
but it is never more than a few steps ahead, so a figure over some seconds is right.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from oarlock.run.gpu_facts.gpu_peaks import peak_of
from oarlock.training.task import device_names

_WINDOW = 20.0  # seconds that a figure covers, or two reports if these take longer
_SHORTEST = 2.0  # seconds before the first figure
_APART = 0.25  # seconds between two marks that are kept


class Throughput:
    """Counts the operations and tokens of one task. `clock` and `devices` are for tests."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        devices: Callable[[], Sequence[str]] = device_names.in_use,
    ) -> None:
        self._clock = clock
        self._devices = devices
        self._per_step: dict[str, float] = {}  # of this task: "flops" and "tokens", if given
        self._given: float | None = None  # the user's own peak
        self._found: float | None = None  # the peak of the GPUs in use
        self._has_looked = False
        self._step: int | None = None
        self._done: dict[str, float] = {}  # so far
        self._marks: deque[tuple[float, dict[str, float]]] = deque()  # when, and what was done by then

    def expect(
        self, flops: float | None = None, peak: float | None = None, tokens_per_step: float | None = None
    ) -> None:
        """Note what one step takes from now on, and what this task's GPUs can do together."""
        given: dict[str, float] = {}
        if flops is not None:
            given["flops"] = _positive(flops, "flops")
        if tokens_per_step is not None:
            given["tokens"] = _positive(tokens_per_step, "tokens_per_step")
        if given.keys() - self._per_step.keys():
            self._step = None  # all of it counts from here
        self._per_step.update(given)
        if peak is not None:
            self._given = _positive(peak, "peak")

    def figures(self, step: int) -> dict[str, float]:
        """Take in a step. Return `mfu` and the rates per second once there is enough data."""
        if not self._per_step:
            return {}
        now, before = self._clock(), self._step
        self._step = step
        if before is None or step < before:
            self._done = dict.fromkeys(self._per_step, 0.0)
            self._marks.clear()
            self._marks.append((now, self._done))
            return {}
        self._done = {
            name: self._done[name] + count * (step - before) for name, count in self._per_step.items()
        }
        began, done = self._oldest(now)
        if self._marks[-1][0] + _APART <= now:
            self._marks.append((now, self._done))
        if now - began < _SHORTEST or self._done == done:
            return {}
        speeds = {name: (self._done[name] - done[name]) / (now - began) for name in self._done}
        peak = self._peak() if "flops" in speeds else None
        share = {} if peak is None else {"mfu": round(speeds["flops"] / peak, 4)}
        return {**share, **{f"{name}_per_second": float(f"{speed:.4g}") for name, speed in speeds.items()}}

    def _oldest(self, now: float) -> tuple[float, dict[str, float]]:
        while len(self._marks) > 2 and self._marks[1][0] + _WINDOW <= now:
            self._marks.popleft()
        return self._marks[0]

    def _peak(self) -> float | None:
        """The peak of all GPUs of this task. None if one is unknown: half a peak would double the share."""
        if self._given is not None:
            return self._given
        if not self._has_looked:
            self._has_looked = True
            peaks = [peak_of(name) for name in self._devices()]
            known = [peak for peak in peaks if peak is not None]
            self._found = sum(known) if known and len(known) == len(peaks) else None
        return self._found


def _positive(value: float, name: str) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {value!r}: pass a number that is more than 0")
    return number
