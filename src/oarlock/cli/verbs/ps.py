"""`oarlock ps`: the runs of this machine, from their records."""

from __future__ import annotations

import time

import click

from oarlock.cli.arguments.options import json_option
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import RunState
from oarlock.screens import event_text, json_shape
from oarlock.screens.output import complain, hint, print_json, print_table, say
from oarlock.units import duration, number, plural

_LATEST = 20
_HEADER = (
    *("RUN", "STATE", "GENERATION", "RESTARTS", "TASKS"),
    *("STEP", "RATE", "LOSS", "BEST SCORE", "GOODPUT", "AGE", "DURATION", "GPU"),
)


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help=f"All of them, not only the latest {_LATEST}.")
@click.option("--refresh", is_flag=True, help="Ask the clusters first; else their runs are as last seen.")
@json_option("a JSON array, each run as `status --json` gives it")
def verb(everything: bool, refresh: bool, as_json: bool) -> None:
    """List runs, newest first."""
    if refresh:
        from oarlock.cli.session import find_run

        find_run.refresh_all()
    found = runs.all_runs()
    shown = found if everything else found[:_LATEST]
    known = [(run, state) for run in shown if (state := _state(run))]
    for run, _ in known:
        if later := run.later():
            complain(later)
    if as_json:
        print_json([json_shape.of_run(run, state) for run, state in known])
        return
    if not found:
        say("no runs yet")
        hint("oarlock run train.py")
        return
    rows = [_row(run, state) for run, state in known]
    width = len(_HEADER) if any(row[-1] for row in rows) else len(_HEADER) - 1  # no GPU column without GPUs
    print_table(_HEADER[:width], [row[:width] for row in rows])
    if len(shown) < len(found):
        hint(f"oarlock ps --all  # {plural(len(found) - len(shown), 'older run')}")


def _state(run: RunFolder) -> RunState | None:
    try:
        return run.state()
    except OSError:
        return None  # deleted since it was listed
    except Exception:  # in one record: the others are shown
        return RunState(run.name, state="unreadable")


def _row(run: RunFolder, state: RunState) -> tuple[str, ...]:
    now, leader = time.time(), state.foremost
    created = state.created or now
    loss = leader.metrics.get("loss") if leader else None
    return (
        state.run,
        _seen(run, state, now),
        str(state.generation),
        str(state.restarts),
        str(len(state.tasks)),
        event_text.steps(leader) if leader else "",
        event_text.rate(leader) if leader and leader.state == "running" and not state.is_over else "",
        "" if loss is None else number(loss),
        event_text.best_score(state),
        event_text.goodput(json_shape.spent(state)),
        duration(now - created),
        duration((_end(state) or now) - created),
        _gpu(state),
    )


def _gpu(state: RunState) -> str:
    """What the leader's GPUs do now, and how well they are used."""
    leader = state.leader
    if leader is None or not leader.gpu or state.is_over:
        return ""
    mfu = leader.metrics.get("mfu")
    share = f"  MFU {mfu:.0%}" if isinstance(mfu, float) else ""
    return f"{event_text.gpu(leader)}{share}"


def _seen(run: RunFolder, state: RunState, now: float) -> str:
    """The state, and its age if the run is elsewhere: it continues while no client follows it."""
    seen = run.seen
    if state.is_over or seen is None:
        return state.state
    return f"{state.state} ({duration(now - seen)} ago)"


def _end(state: RunState) -> float | None:
    """A lost run ended when it was last heard of."""
    return state.updated if state.state == "lost" else state.ended
