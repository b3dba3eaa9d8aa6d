"""What TensorBoard shows for a run's events: which numbers, under which tags, at which step. Pure; travels.

    training     what the chief and the workers report, the GPU readings of the first of them, and how fast
                 and how well the run advances
    evaluation   what evaluators report, at the step of the checkpoint that they scored
    ingest       what the ingest reports

Workers that train together mostly report the same numbers, so each tag takes those of the first task that
reports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from oarlock.run.accounting import step_of
from oarlock.run.best_scores import role_of
from oarlock.run.cluster import is_ingest
from oarlock.run.observed import knows_its_step, source_of
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState
from oarlock.run.task_state import TaskState

TRAINING, EVALUATION, INGEST = "training", "evaluation", "ingest"
_RATE, _GOODPUT = "oarlock/steps_per_second", "oarlock/goodput"
_GPU = "oarlock/gpu_"  # followed by memory, power or utilization
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # as events.encode writes them
_LARGEST_STEP = 2**63 - 1


@dataclass(frozen=True)
class Point:
    """The values of several tags at one step."""

    folder: str  # TRAINING, EVALUATION or INGEST
    generation: int
    t: float
    step: int
    values: dict[str, float]


def point_of(event: Event, state: RunState) -> Point | None:
    """Return what an event adds to the board, if anything. `state` already includes the event."""
    if event["kind"] == "gpu":
        return _gpu_point(event, state)
    if event["kind"] != "report" or not knows_its_step(source_of(event)):
        return None
    task = state.tasks[event["task"]]
    values = {
        key: value
        for key in task.metrics.keys() & event.keys()
        if (value := _number(event[key])) is not None
        and not any(key in other.metrics for other in _before(task, state))
    }
    folder = _folder(task)
    if folder == TRAINING and not any(other.step is not None for other in _before(task, state)):
        values.update(_rates(task, state))
    step = step_of(event) if step_of(event) is not None else task.step
    if not values or not 0 <= (step or 0) <= _LARGEST_STEP:
        return None
    return Point(folder, state.generation, event["t"], step or 0, dict(sorted(values.items())))


def _gpu_point(event: Event, state: RunState) -> Point | None:
    """The GPU readings, at the step that the task reported last; memory in GB, as on screens."""
    task = state.tasks[event["task"]]
    if task.step is None or not knows_its_step(task.observed) or any(one.gpu for one in _before(task, state)):
        return None
    reading = {**task.gpu, "memory": (_number(task.gpu.get("memory")) or 0) / 1e9}
    values = {
        f"{_GPU}{name}": value
        for name in ("memory", "power", "utilization")
        if (value := _number(reading.get(name))) is not None
    }
    return Point(_folder(task), state.generation, event["t"], task.step, dict(sorted(values.items())))


def _before(task: TaskState, state: RunState) -> Iterator[TaskState]:
    """The tasks before this one, in rank order, whose numbers go to the same folder."""
    for other in state.tasks.values():
        if other is task:
            return
        if _folder(other) == _folder(task):
            yield other


def _folder(task: TaskState) -> str:
    if is_ingest(task.name):
        return INGEST
    return EVALUATION if role_of(task.name) == "evaluator" else TRAINING


def _rates(task: TaskState, state: RunState) -> dict[str, float]:
    found = {_RATE: task.rate, _GOODPUT: state.accounts.in_seconds()["goodput"]}
    return {tag: value for tag, value in found.items() if value is not None}


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _NO_NUMBERS.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
