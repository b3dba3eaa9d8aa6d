"""`oarlock status`: everything that RunState holds, for people."""

from __future__ import annotations

import time
from collections import Counter

import click

from oarlock.cli import current, ending, shape, telling
from oarlock.cli.options import json_option, run_argument
from oarlock.cli.output import duration, hint, plural, print_block, print_json, print_table, say
from oarlock.events import RunState, TaskState

_MOST = 30  # tasks that are listed
_HEADER = ("TASK", "STATE", "STEP", "RATE", "ETA", "STARTS", "CODE", "PROCESS", "METRICS")


@click.command("status")
@run_argument
@json_option("the run's state as JSON")
def verb(name: str | None, as_json: bool) -> None:
    """Show all that is known about a run."""
    run = current.find(name)
    state = run.state()
    if as_json:
        print_json(shape.of_run(run, state))
        return
    _print_heading(state)
    say()
    _print_tasks(list(state.tasks.values()))
    if state.straggler is not None:
        print_block("straggler", [telling.straggler(state.straggler)])
    if state.problem is not None:
        print_block("problem", state.problem.split("; ", 1))
    if state.failure is not None:
        print_block("failure" if state.is_final else "last failure", ending.failure(run, state.failure))
    if state.notes:
        print_block("notes", state.notes)
    print_block("folders", [f"{kind:<12} {place}" for kind, place in shape.folders(run).items()])
    hint(
        ending.next_command(run, state)
        if state.is_final or state.state == "lost"
        else f"oarlock attach {run.name}"
    )


def _print_tasks(tasks: list[TaskState]) -> None:
    """All of a few; of many how many are in which state, the leader, and those that stand out."""
    if len(tasks) <= _MOST:
        print_table(_HEADER, [_row(task) for task in tasks])
        return
    counts = Counter(task.state for task in tasks)
    usual = counts.most_common(1)[0][0]
    odd = [task for task in tasks[1:] if task.state != usual]
    shown = [tasks[0], *odd[: _MOST - 1]]
    say(", ".join(f"{count} {state}" for state, count in counts.most_common()))
    print_table(_HEADER, [_row(task) for task in shown])
    if len(odd) >= _MOST:
        say(f"and {len(odd) - _MOST + 1} more that are not {usual}")


def _print_heading(state: RunState) -> None:
    code = f", exit code {telling.exit_code(state)}" if state.is_final else ""
    reason = f": {telling.first_line(state.reason)}" if state.reason and state.failure is None else ""
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
    say(f"time {telling.time_spent(shape.spent(state))}")


def _row(task: TaskState) -> tuple[str, ...]:
    return (
        task.name,
        task.state,
        telling.steps(task),
        telling.rate(task),
        duration(task.eta) if task.eta and task.state == "running" else "",
        str(task.starts),
        "" if task.code is None else str(task.code),
        "" if task.pid is None else str(task.pid),
        "  ".join(telling.metrics(task, most=len(task.metrics))),
    )
