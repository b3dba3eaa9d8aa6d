"""Which numbers of a run's events TensorBoard shows."""

from __future__ import annotations

import math
from typing import Any

from oarlock.run.board_points import Point, point_of
from oarlock.run.run_events import Event, decode, encode
from oarlock.run.run_state import RunState

TASKS = ["worker-0", "worker-1", "evaluator-0"]


def _points(*reports: Event, tasks: list[str] = TASKS) -> list[Point]:
    state = RunState("r")
    events: list[Event] = [
        {"t": 0.0, "kind": "run", "job": "j", "tasks": tasks},
        {"t": 0.0, "kind": "agent", "pid": 1},
        {"t": 1.0, "kind": "generation", "generation": 1, "tasks": tasks},
        *reports,
    ]
    found = []
    for event in events:
        state.apply(event)
        found.append(point_of(event, state))
    return [point for point in found if point is not None]


def _report(t: float, task: str, **fields: Any) -> Event:
    return {"t": t, "kind": "report", "task": task, **fields}


def test_training_has_its_metrics_its_rate_and_its_goodput() -> None:
    first, second = _points(
        _report(2.0, "worker-0", step=1, total=9, loss=2.0, busy=0.5),
        _report(
            4.0, "worker-0", step=5, loss=1, examples_per_second=64.0, note="text", deep={"a": 1}, ok=True
        ),
    )
    assert first == Point("training", 1, 2.0, 1, {"loss": 2.0, "oarlock/goodput": 0.0})
    assert (second.step, second.t) == (5, 4.0)
    assert second.values == {
        "loss": 1.0,
        "examples_per_second": 64.0,
        "oarlock/steps_per_second": 2.0,
        "oarlock/goodput": 0.5,
    }


def test_an_evaluator_has_a_folder_of_its_own_and_the_step_of_its_checkpoint() -> None:
    training, score = _points(
        _report(2.0, "worker-0", step=500, loss=2.0), _report(3.0, "evaluator-0", step=100, loss=3.0)
    )
    assert (training.folder, training.step) == ("training", 500)
    assert score == Point("evaluation", 1, 3.0, 100, {"loss": 3.0})


def test_an_ingest_is_no_part_of_the_training() -> None:
    ingest, _, training = _points(
        _report(2.0, "ingest-0", step=1, total=4, files=1),
        _report(3.0, "worker-0", step=1, loss=1.0),
        _report(4.0, "worker-0", step=3, loss=1.0),
        tasks=["ingest-0", *TASKS],
    )
    assert (ingest.folder, ingest.values) == ("ingest", {"files": 1.0})
    assert training.folder == "training"
    assert training.values["oarlock/steps_per_second"] == 2.0


def test_each_tag_is_that_of_the_first_task_that_reports_it() -> None:
    found = _points(
        _report(2.0, "worker-0", step=1, loss=1.0),
        _report(2.0, "worker-1", step=1, loss=9.0),
        _report(3.0, "worker-1", step=2, loss=9.0, perplexity=4.0),
    )
    assert [point.values.get("loss") for point in found] == [1.0, None]
    assert found[1].values == {"perplexity": 4.0}


def test_a_silent_leader_leaves_the_rates_to_the_next() -> None:
    *_, last = _points(_report(2.0, "worker-1", step=1), _report(3.0, "worker-1", step=3))
    assert last.values["oarlock/steps_per_second"] == 2.0


def test_a_record_keeps_what_is_no_number() -> None:
    line = encode(_report(2.0, "worker-0", step=1, loss=math.nan, most=math.inf, least=-math.inf))
    event = decode(line)
    assert event is not None
    [point] = _points(event)
    assert math.isnan(point.values["loss"])
    assert (point.values["most"], point.values["least"]) == (math.inf, -math.inf)


def test_progress_bars_and_other_events_are_not_shown() -> None:
    assert not _points(
        _report(2.0, "worker-0", step=3, loss=1.0, observed="tqdm"),
        _report(3.0, "evaluator-0", step=3),
        {"t": 4.0, "kind": "note", "text": "hello"},
    )
    [keras] = _points(_report(2.0, "worker-0", step=3, loss=1.0, observed="keras"))
    assert keras.values["loss"] == 1.0


def test_without_a_step_it_is_the_last_one() -> None:
    found = _points(_report(2.0, "worker-0", step=7), _report(3.0, "worker-0", loss=1.0))
    assert [(point.step, point.values.get("loss")) for point in found] == [(7, None), (7, 1.0)]
    assert _points(_report(2.0, "worker-0", step=-1, loss=1.0)) == []


def _gpu(t: float, task: str, memory: int = 5 * 10**9) -> Event:
    return {"t": t, "kind": "gpu", "task": task, "memory": memory, "memory_total": 10**10, "power": 600.0}


def test_gpus_of_the_first_task_that_has_any_are_shown_at_its_step() -> None:
    found = _points(
        _gpu(2.0, "worker-1"),  # it has not reported yet
        _report(3.0, "worker-1", step=4, loss=1.0),
        _gpu(4.0, "worker-1"),
        _report(5.0, "worker-0", step=7, loss=1.0),
        _gpu(6.0, "worker-0", memory=6 * 10**9),
        _gpu(7.0, "worker-1"),
    )
    assert [
        (point.t, point.step, point.values) for point in found if "oarlock/gpu_power" in point.values
    ] == [
        (4.0, 4, {"oarlock/gpu_memory": 5.0, "oarlock/gpu_power": 600.0}),
        (6.0, 7, {"oarlock/gpu_memory": 6.0, "oarlock/gpu_power": 600.0}),
    ]


def test_steps_that_a_progress_bar_counts_are_no_place_for_gpus() -> None:
    assert _points(_report(2.0, "worker-0", step=4, observed="tqdm"), _gpu(3.0, "worker-0")) == []
