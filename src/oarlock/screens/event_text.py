"""Events, progress and exit codes in words. Pure: state in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oarlock.agent.lead.phases.restart_budget import DOUBLED
from oarlock.run.accounting import PARTS
from oarlock.run.best_scores import of_checkpoint
from oarlock.run.cluster import INGEST, is_ingest
from oarlock.run.error_text import error_text
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState
from oarlock.run.task_state import TaskState
from oarlock.screens.ansi import resolve
from oarlock.units import duration, number, plural, size

_METRICS = 3  # that fit on a line: the loss and two more
_NO_METRICS = ("t", "kind", "task", "step", "generation")
_PARTS = {"lost": "lost work"}


def notable(event: Event, state: RunState) -> str | None:
    """Return the line that a user who follows the run sees for an event; None for most events."""
    kind = event["kind"]
    if kind in ("generation", "restart", "scale", "note", "warning", "problem", "stop") or (
        kind == "ready" and event.get("modules")
    ):
        return describe(event)
    if of_checkpoint(event):
        return _score(event)
    if kind == "run":
        return f"run {state.run}"
    return None


def describe(event: Event) -> str:
    """Return an event as one line."""
    teller = _TELLERS.get(event["kind"])
    if teller is not None:
        return teller(event)
    known = {key: value for key, value in event.items() if key not in ("t", "kind")}
    return " ".join([event["kind"], *(f"{key}={value}" for key, value in known.items())])


def run_progress(task: TaskState) -> str:
    """Return the progress of a run by its foremost task; before the training, that is an ingest."""
    return progress(task, INGEST if is_ingest(task.name) else "step")


def progress(task: TaskState, what: str = "step") -> str:
    """Return a task's progress: `step 120/400  3.2/s  loss 0.41  ETA 1m20s`."""
    parts = [f"{what} {steps(task)}", rate(task), *metrics(task), eta(task)]
    return "  ".join(part for part in parts if part)


def skipped(task: str, count: int, run: str) -> str:
    """Return the line that stands for output which a terminal was too slow to show."""
    return f"skipped {size(count)} of {task}, to catch up: oarlock logs {run} --task {task} has all of it"


def steps(task: TaskState) -> str:
    """Return the step, and the total if it is known: `120/400`."""
    if task.step is None:
        return ""
    return str(task.step) if task.total is None else f"{task.step}/{task.total}"


def rate(task: TaskState) -> str:
    """Return the steps per second, or per minute if they are slow."""
    if not task.rate:
        return ""
    return f"{task.rate:.1f}/s" if task.rate >= 0.1 else f"{task.rate * 60:.2g}/min"


def eta(task: TaskState) -> str:
    """Return the time left: `ETA 1m20s`."""
    return f"ETA {duration(task.eta)}" if task.eta and task.state == "running" else ""


def metrics(task: TaskState, most: int = _METRICS) -> list[str]:
    """Return the first metrics: loss and MFU, then in the order in which the program reported them."""
    names = sorted(task.metrics, key=lambda name: (name != "loss", name != "mfu"))
    return [f"{name} {number(task.metrics[name])}" for name in names[:most]]


def gpu(task: TaskState) -> str:
    """Return the last sample of a task's GPUs: `97%  38.1/140 GB  612 W`; nothing if it uses none."""
    sample = task.gpu
    if not sample:
        return ""
    used, total = (sample.get(name) or 0 for name in ("memory", "memory_total"))
    parts = [f"{sample['utilization']:.0%}"] if sample.get("utilization") is not None else []
    parts.append(f"{used / 1e9:.3g}/{total / 1e9:.3g} GB")
    parts += [f"{sample['power']:.0f} W"] if sample.get("power") is not None else []
    return "  ".join(parts)


def best_score(state: RunState) -> str:
    """Return the best value of the metric that the evaluator reports first: `accuracy 0.951 at step 300`."""
    for name, score in state.scores.items():
        return f"{name} {number(score.best)} at step {score.best_step}"
    return ""


def time_spent(spent: Mapping[str, float | None]) -> str:
    """Return where the time went: `12m03s: step 11m20s (goodput 94%), start 3.1s, lost work 31s`."""
    share = f" (goodput {goodput(spent)})" if goodput(spent) else ""
    parts = [(_PARTS.get(name, name), duration(spent[name])) for name in PARTS if name != "step"]
    shown = [f"{name} {length}" for name, length in parts if length != duration(0)]
    steps = f"step {duration(spent['step'])}{share}"
    return f"{duration(spent['total'])}: {', '.join([steps, *shown])}"


def goodput(spent: Mapping[str, float | None]) -> str:
    """Return the share of the time that went into steps whose work was kept."""
    share = spent["goodput"]
    return "" if share is None else f"{share:.0%}"


def straggler(task: TaskState) -> str:
    """Return a sentence about the task that slows the others down."""
    return f"{task.name} slows the others down: it is busy {task.busy or 0:.0%} of the time while they wait"


def exit_code(state: RunState) -> int:
    """Return the exit code of `oarlock run` for a run that has ended like this."""
    if state.state == "succeeded":
        return 0
    code = state.code if isinstance(state.code, int) else 0  # sys.exit prints what is not a number
    return code or (130 if state.state == "stopped" else 1)


def first_line(text: str, most: int = 200) -> str:
    """Return the first line of a text, without control sequences, cut to `most` characters."""
    line = resolve(text.strip().partition("\n")[0], colours=False)
    return line if len(line) <= most else line[: most - 1] + "…"


def _ready(event: Event) -> str:
    modules = ", ".join(event.get("modules") or [])
    said = "ready"
    if modules and event.get("seconds"):
        said = f"imported {modules} in {duration(event['seconds'])}"
        if event.get("keeper"):
            said += f"; process {event['keeper']} keeps them for {duration(event.get('keep'))} after the run"
    elif modules:
        said = f"{modules} already imported by process {event.get('keeper')}"
    return f"{event['on']}: {said}" if event.get("on") else said


def _task(event: Event) -> str:
    if event["state"] == "started":
        return f"{event['task']} started, process {event.get('pid')}"
    why = " (ended by Oarlock)" if event.get("ours") else ""
    return f"{event['task']} ended with exit code {event.get('code')}{why}"


def _report(event: Event) -> str:
    if of_checkpoint(event):
        return _score(event)
    known = {key: value for key, value in event.items() if key not in ("t", "kind", "task", "step", "total")}
    task = TaskState(event["task"], step=event.get("step"), total=event.get("total"), metrics=known)
    return f"{event['task']} {progress(task)}"


def _gpu(event: Event) -> str:
    numbers = ", ".join(map(str, event.get("gpus") or [])) or "?"
    return f"{event['task']} on GPU {numbers}: {gpu(TaskState(event['task'], gpu=event))}"


def _score(event: Event) -> str:
    known = {key: value for key, value in event.items() if key not in _NO_METRICS}
    found = "  ".join(metrics(TaskState(event["task"], metrics=known), most=len(known)))
    return f"{event['task']} scored step {event['step']}{': ' if found else ''}{found}"


def _error(event: Event) -> str:
    where = f" at {event['where']}" if event.get("where") else ""
    return f"{event['task']} {error_text(event.get('type'), first_line(event.get('message') or ''))}{where}"


def _restart(event: Event) -> str:
    # The reason may end a sentence of its own, and announce lines that are not shown here.
    reason = first_line(event.get("reason", "")).rstrip(" .,:;")
    if event.get("forgiven"):
        return "; ".join(part for part in (reason, "restarting the gang") if part)
    who = f"{event['task']} failed" if event.get("task") else ""
    left = f"{event.get('left')} left{' for it' if event.get('alone') else ''}"
    left += f": {DOUBLED}" if event.get("doubled") else ""
    what = ": ".join(part for part in (who, reason) if part)
    how = f"restarting{' it alone' if event.get('alone') else ''} ({left})"
    return "; ".join(part for part in (what, how) if part)


def _checkpoint(event: Event) -> str:
    step = f" of step {event['step']}" if event.get("step") is not None else ""
    return f"checkpoint{step} saved in {duration(event.get('seconds'))}"


def _problem(event: Event) -> str:
    if not event.get("text"):
        return "problem resolved"
    return f"{event['text']}; {event['fix']}" if event.get("fix") else str(event["text"])


def _end(event: Event) -> str:
    reason = f": {first_line(event['reason'])}" if event.get("reason") else ""
    return f"{event['state']}, exit code {event.get('code')}{reason}"


_TELLERS: dict[str, Callable[[Event], str]] = {
    "run": lambda event: f"run of {event.get('job')}: {plural(len(event.get('tasks', [])), 'task')}",
    "agent": lambda event: (
        f"agent: process {event['pid']} on {event.get('host')}" if event.get("pid") else "resumed"
    ),
    "ready": _ready,
    "generation": lambda event: (
        f"generation {event['generation']}: {plural(len(event.get('tasks', [])), 'task')}"
    ),
    "task": _task,
    "report": _report,
    "gpu": _gpu,
    "error": _error,
    "restart": _restart,
    "scale": lambda event: f"scaling to {plural(event.get('workers', 0), 'worker')}",
    "checkpoint": _checkpoint,
    "snapshot": lambda event: f"snapshot {event.get('name')} uploaded",
    "note": lambda event: first_line(str(event.get("text"))),
    "warning": lambda event: f"warning: {_problem(event)}",
    "problem": _problem,
    "image": lambda event: f"image {event.get('image')} is {event.get('digest')}",
    "stop": lambda event: f"stopping: {event.get('reason')}",
    "end": _end,
}

KINDS = tuple(_TELLERS)
