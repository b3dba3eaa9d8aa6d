"""A faster form is used if it gives the same answers and is faster. Time is what the runtimes say it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.runtimes import fastest_form
from oarlock.serving.runtimes.runtime import ModelError

MANIFEST = Manifest("saved_model", (Tensor("x", "float32", (None, 2)),), (Tensor("y", "float32", (None, 2)),))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Model:
    """Doubles its input, in the time that it is given: seconds a call, and a row."""

    manifest = MANIFEST
    only_computes = True

    def __init__(self, form: str, clock: Clock, call: float, row: float = 0.0, change: Any = None) -> None:
        self.form, self.is_open = form, True
        self._clock, self._call, self._row, self._change = clock, call, row, change

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self._clock.now += self._call + self._row * len(inputs["x"])
        outputs = {"y": inputs["x"] * 2}
        return self._change(outputs) if self._change else outputs

    def close(self) -> None:
        self.is_open = False


def _chosen(tmp_path: Path, faster: Callable[[Clock], Model]) -> tuple[str, list[str], bool]:
    clock, notes = Clock(), list[str]()
    plain, other = Model("Plain", clock, 0.010, 0.001), faster(clock)
    found = fastest_form.choose(tmp_path, plain, lambda: other, notes.append, clock)
    assert found in (plain, other)
    return found.form, notes, (plain if found is other else other).is_open


def test_a_faster_form_with_the_same_answers_is_used_and_says_how_much_it_gains(tmp_path: Path) -> None:
    form, notes, is_other_open = _chosen(tmp_path, lambda clock: Model("Fast", clock, 0.001, 0.001))
    assert (form, notes, is_other_open) == ("Fast, 5.5 times as fast as Plain", [], False)


@pytest.mark.parametrize(
    ("call", "row"), [(0.0113, 0.0), (0.001, 0.010)], ids=["a little with one row", "with many rows"]
)
def test_a_slower_one_is_not(tmp_path: Path, call: float, row: float) -> None:
    found = _chosen(tmp_path, lambda clock: Model("Fast", clock, call, row))
    assert found == ("Plain", ["Plain is used: Fast is not faster"], False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: {"y": out["y"] * 1.01}, r"'y' differs by up to "),
        (lambda out: {"y": out["y"].astype("float64")}, r"'y' is float64 of shape \(1, 2\), not float32"),
        (lambda out: {"z": out["y"]}, r"its outputs are z"),
        (lambda out: {"y": np.where(out["y"] > 0, np.nan, out["y"])}, r"'y' differs"),
    ],
)
def test_one_that_answers_otherwise_is_not(tmp_path: Path, change: Any, said: str) -> None:
    form, [note], is_other_open = _chosen(tmp_path, lambda clock: Model("Fast", clock, 0, change=change))
    assert (form, is_other_open) == ("Plain", False)
    with pytest.raises(AssertionError, match=f"Plain is used: Fast gives different answers: {said}"):
        raise AssertionError(note)


def test_rounding_is_no_difference() -> None:
    right = {"y": np.array([1.0, 1000.0, np.nan], "float32"), "best": np.array([1])}
    near = {"y": right["y"] * np.float32(1 + 1e-4), "best": np.array([1])}
    assert fastest_form.differing(right, near) == ""
    assert fastest_form.differing(right, {**near, "best": np.array([2])}) == "'best' has other values"


def test_one_that_cannot_be_made_or_called_is_a_note_and_no_error(tmp_path: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise ModelError("it has no such form")

    plain, notes = Model("Plain", Clock(), 0.01), list[str]()
    assert fastest_form.choose(tmp_path, plain, refuse, notes.append) is plain
    assert notes == ["Plain is used: it has no such form"]
    form, notes, _ = _chosen(tmp_path, lambda clock: Model("Fast", clock, 0, change=refuse))
    assert (form, notes) == ("Plain", ["Plain is used: it has no such form"])
