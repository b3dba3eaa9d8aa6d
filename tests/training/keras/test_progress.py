"""`oarlock.keras.callbacks()` in a real `model.fit`: what the agent is told."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oarlock.training.keras import Progress
from oarlock.training.task import channel
from oarlock.training.task.context import Context
from tests.support.call_counts import calls_of
from tests.support.soaking import cases

PROGRAM = Path(__file__).parents[1] / "programs" / "fit_progress.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "backend"), cases([("keras", "tensorflow")], soak=[("keras", "jax"), ("tf_keras", "")])
)
def test_fit_reports_every_step_with_what_keras_measured(library: str, backend: str) -> None:
    for needed in (library, backend or "tensorflow"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    known, unknown, printed = run_fit(library, backend)

    assert {report["total"] for report in known} == {6}
    check_fit(known, printed["known"])

    assert "total" not in unknown[0]  # nobody can know
    assert unknown[-1]["total"] == 6  # after the first epoch everybody does
    check_fit(unknown, printed["unknown"])

    assert not printed["waits"]


def run_fit(library: str, backend: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """(what the agent got, with data of known and then of unknown length; what the program printed)."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        environ = {**os.environ, "OARLOCK_FD": str(theirs.fileno()), "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(PROGRAM), library],
            env={**environ, "KERAS_BACKEND": backend} if backend else environ,
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in ours.recv(1 << 20).splitlines()]
    middle = next(number for number, event in enumerate(events) if event["kind"] == "note")
    return events[:middle], events[middle + 1 :], json.loads(done.stdout.splitlines()[-1])


def check_fit(reports: list[dict[str, Any]], history: dict[str, list[float]]) -> None:
    """Two epochs of three steps, each with validation, and an evaluation that says nothing."""
    steps = [report["step"] for report in reports if "loss" in report]
    assert steps == sorted(steps)
    assert set(steps) <= set(range(1, 7))
    assert {3, 6} <= set(steps)
    assert {report["epoch"] for report in reports} == {1, 2}
    assert all("mae" in report for report in reports if "loss" in report)

    epochs = [report for report in reports if "val_loss" in report]
    assert [report["step"] for report in epochs] == [3, 6]
    assert [report["loss"] for report in epochs] == pytest.approx(history["loss"])
    assert [report["val_mae"] for report in epochs] == pytest.approx(history["val_mae"])
    assert reports[-1] is epochs[-1]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(channel, "report", found.append)
    return found


def begun(**params: Any) -> Progress:
    progress = Progress()
    progress.set_params(params)
    progress.on_epoch_begin(0)
    return progress


def test_batches_that_overtake_each_other_never_go_back(told: list[dict[str, Any]]) -> None:
    progress = begun(epochs=1, steps=10)
    for batch in (0, 2, 1, 3):
        progress.on_train_batch_end(batch, {"loss": 1.0})
    assert [event["step"] for event in told] == [1, 3, 4]


def test_validation_is_a_sign_of_life(told: list[dict[str, Any]]) -> None:
    progress = begun(epochs=1, steps=10)
    progress.on_train_batch_end(9, {"loss": 1.0})
    progress.on_test_batch_end(0, {"loss": 5.0})
    assert told[-1] == {"step": 10, "total": 10, "epoch": 1}  # and its loss is not the training's


def test_going_on_in_a_later_epoch_counts_from_there(told: list[dict[str, Any]]) -> None:
    progress = Progress()
    progress.set_params({"epochs": 4, "steps": 10})
    progress.on_epoch_begin(2)
    progress.on_train_batch_end(0, {"loss": 1.0})
    assert told == [{"step": 21, "total": 40, "epoch": 3, "loss": 1.0}]


def test_metrics_that_are_no_number_or_have_a_taken_name_are_left_out(told: list[dict[str, Any]]) -> None:
    class Tensor:
        shape = (3,)

    begun().on_train_batch_end(0, {"loss": 1.0, "per_class": Tensor(), "step": 7, "total": 8})
    assert told == [{"step": 1, "epoch": 1, "loss": 1.0}]


def test_a_report_costs_a_step_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "report", lambda *args, **kwargs: None)
    progress = begun(epochs=1, steps=10**6)
    logs = {"loss": 1.0, "accuracy": 0.5}
    first, *_, last = (calls_of(partial(progress.on_train_batch_end, batch, logs)) for batch in range(10_000))
    assert len(last) <= len(first) < 20, first
