"""A model server in words: where it is, what it serves, how it is doing."""

from __future__ import annotations

from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import RunState
from oarlock.run.task_state import TaskState
from oarlock.run.typed import is_number
from oarlock.serving.fleet import announcement
from oarlock.units import number, plural


def lines(run: RunFolder, state: RunState) -> list[str]:
    """Return what is known about a model server; nothing for any other run, or before it answers."""
    tasks = [task for task in state.tasks.values() if "version" in task.metrics]  # on a cluster, pods
    if not run.serving_file.exists() or not tasks:
        return []
    known = tasks[0].metrics
    announced = announcement.read(announcement.path_for(run.serving_file))
    name = f"{announced.name}, " if announced is not None else ""
    what = f"{name}version {known['version']} ({known.get('form', '')})"
    requests = sum(task.step or 0 for task in tasks)
    facts = [plural(requests, "request"), f"{number(_sum(tasks, 'requests_per_s'))}/s"]
    slowest = [task.metrics["p99_ms"] for task in tasks if "p99_ms" in task.metrics]
    facts += [f"p99 {number(max(slowest))} ms"] if slowest else []
    facts += [f"{number(_sum(tasks, 'queue'))} waiting"]
    where = [announced.url] if announced is not None and state.state == "running" else []
    return [*where, f"{what}, {plural(int(_sum(tasks, 'replicas')), 'replica')}", ", ".join(facts)]


def _sum(tasks: list[TaskState], metric: str) -> float:
    found = [task.metrics.get(metric, 0) for task in tasks]
    return float(sum(value for value in found if is_number(value)))
