"""`oarlock status`: everything in RunState, for people."""

from __future__ import annotations

import time
from collections import Counter

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.records.watch import unfinished_lines
from oarlock.run.run_state import RunState
from oarlock.run.task_state import TaskState
from oarlock.screens import event_text, json_shape, served_text, summary
from oarlock.screens.last_line import first_row
from oarlock.screens.output import hint, print_block, print_json, print_table, say
from oarlock.units import duration, plural

_MOST = 30  # tasks that are listed
_HEADER = ("TASK", "STATE", "STEP", "RATE", "ETA", "STARTS", "CODE", "PROCESS", "GPU", "METRICS")


@click.command("status")
@run_argument
@json_option("the run's state as JSON")
def verb(name: str | None, as_json: bool) -> None:
    """Show everything that is known about a run."""
    run = find_run.find(name)
    state = run.state()
    if as_json:
        print_json(json_shape.of_run(run, state))
        return
    _print_heading(state)
    say()
    _print_tasks(list(state.tasks.values()))
    if served := served_text.lines(run, state):
        print_block("serving", served)
    if any(json_shape.gpus(run).values()):
        shares = [f"{task}: {', '.join(ids) or 'none'}" for task, ids in json_shape.gpus(run).items()]
        print_block("GPUs", shares[:_MOST])
    if begun := unfinished_lines(run, state.generation):
        print_block("unfinished lines", [first_row(task, text) for task, text in begun.items()][:_MOST])
    if state.scores:
        print_block("scores", summary.scores(state))
    if state.straggler is not None:
        print_block("straggler", [event_text.straggler(state.straggler)])
    if state.problem is not None:
        print_block("problem", state.problem.split("; ", 1))
    for warning in state.warnings:
        print_block("warning", warning.split("; ", 1))
    if state.failure is not None:
        print_block("failure" if state.is_final else "last failure", summary.failure(run, state.failure))
    if state.notes:
        print_block("notes", state.notes)
    print_block("folders", [f"{kind:<12} {place}" for kind, place in json_shape.folders(run).items()])
    hint(
        summary.next_command(run, state)
        if state.is_final or state.state == "lost"
        else f"oarlock attach {run.name}"
    )


def _print_tasks(tasks: list[TaskState]) -> None:
    """List all tasks if they are few; otherwise a count, the leader, and tasks in an unusual state."""
    if len(tasks) <= _MOST:
        _print_rows(tasks)
        return
    counts = Counter(task.state for task in tasks)
    usual = counts.most_common(1)[0][0]
    odd = [task for task in tasks[1:] if task.state != usual]
    shown = [tasks[0], *odd[: _MOST - 1]]
    say(", ".join(f"{count} {state}" for state, count in counts.most_common()))
    _print_rows(shown)
    if len(odd) >= _MOST:
        say(f"and {len(odd) - _MOST + 1} more that are not {usual}")


def _print_rows(tasks: list[TaskState]) -> None:
    """Print the tasks as a table, without a GPU column if no task uses a GPU."""
    shown = [at for at, name in enumerate(_HEADER) if name != "GPU" or any(task.gpu for task in tasks)]
    rows = [_row(task) for task in tasks]
    print_table([_HEADER[at] for at in shown], [[row[at] for at in shown] for row in rows])


def _print_heading(state: RunState) -> None:
    code = f", exit code {event_text.exit_code(state)}" if state.is_final else ""
    reason = f": {event_text.first_line(state.reason)}" if state.reason and state.failure is None else ""
    say(f"{state.run} {state.state}{code}{reason}", bold=True)
    facts = [
        f"job {state.job}",
        state.engine,
        f"generation {state.generation}",
        plural(state.restarts, "restart"),
    ]
    if state.agent and not state.is_final and state.state != "lost":
        facts.append(f"agent process {state.agent}")
    say(", ".join(facts))
    for what, when in (("created", state.created), ("started", state.started), ("ended", state.ended)):
        if when is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
            say(f"{what} {stamp} ({duration(time.time() - when)} ago)")
    say(f"time {event_text.time_spent(json_shape.spent(state))}")


def _row(task: TaskState) -> tuple[str, ...]:
    return (
        task.name,
        task.state,
        event_text.steps(task),
        event_text.rate(task),
        duration(task.eta) if task.eta and task.state == "running" else "",
        str(task.starts),
        "" if task.code is None else str(task.code),
        "" if task.pid is None else str(task.pid),
        event_text.gpu(task),
        "  ".join(event_text.metrics(task, most=len(task.metrics))),
    )
