"""`oarlock scale`: another number of workers for a run that is under way."""

from __future__ import annotations

import time

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.cli.session.ask_agent import ask, kept_fresh, require_running
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.watch import Tail
from oarlock.run.events import decode
from oarlock.run.run_state import RunState
from oarlock.screens import json_shape
from oarlock.screens.output import complain, print_json, say
from oarlock.screens.units import plural

_PATIENCE = 60.0  # seconds for the new generation to form
_MOMENT = 3.0  # seconds for a problem of before to be taken back


@click.command("scale")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] N", shell_complete=run_names)
@json_option("the run's state as JSON")
def verb(words: tuple[str, ...], as_json: bool) -> None:
    """Give a run that is under way another number of workers.

    Its tasks are ended and a generation with N workers starts, from the last checkpoint; programs that keep
    an oarlock.State save first and lose no step. It costs no restart.
    """
    name, workers = _parse(words)
    run = find_run.find(name)
    require_running(run)
    if run.is_remote:
        from oarlock.engines.kubernetes import kubernetes_engine

        kubernetes_engine.check_scale(run, workers)
    with kept_fresh(run):
        answer = ask(run, {"ask": "scale", "workers": workers})
        if run.is_remote:
            kubernetes_engine.scale(run, workers)
        state = _until_formed(run, workers, answer["tasks"], answer["generation"])
    if as_json:
        print_json(json_shape.of_run(run, state))
        return
    say(f"{run.name} runs with {plural(workers, 'worker')} in generation {state.generation}")


def _parse(words: tuple[str, ...]) -> tuple[str | None, int]:
    *names, count = words
    if len(names) > 1:
        raise click.UsageError(f"expected [RUN] N, found {' '.join(words)}")
    if not count.isdecimal():
        raise click.UsageError(
            f"{count} is not a number of workers; `oarlock scale {words[0]} 4` gives it four"
        )
    return (names[0] if names else None), int(count)


def _until_formed(run: runs.RunFolder, workers: int, tasks: int, generation: int) -> RunState:
    state, happened = RunState(run.name), Tail(run.events_file)
    wanted, began, told = plural(workers, "worker"), time.monotonic(), None
    while True:
        is_held = run.is_running()  # before the look: what was written by then is seen
        for line in happened.lines():
            event = decode(line.decode(errors="replace"))
            if event is not None:
                state.apply(event)
            if state.generation >= generation and _workers(state) == ["running"] * tasks:
                return state  # it may have ended since
        if not is_held:
            raise OarlockError(f"{run.name} {run.state().state} before {wanted} were running")
        if state.problem not in (None, told) and time.monotonic() > began + _MOMENT:
            told = state.problem
            complain(told)
        if time.monotonic() > began + _PATIENCE:
            running = _workers(state).count("running") * workers // tasks
            raise OarlockError(_too_few(run.name, workers, running))
        time.sleep(0.05)


def _workers(state: RunState) -> list[str]:
    return [task.state for task in state.tasks.values() if task.name.startswith("worker-")]


def _too_few(run: str, workers: int, running: int) -> str:
    told = f"{run} was asked for {plural(workers, 'worker')} but has {running} running after {_PATIENCE:g} s"
    if not running:
        return f"{told}; `oarlock status {run}` tells more"
    return f"{told}; the others join when they come, and `oarlock scale {run} {running}` takes it back"
