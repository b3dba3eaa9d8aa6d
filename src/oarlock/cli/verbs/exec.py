"""`oarlock exec`: a command beside a task of a run, with the task's folder and variables."""

from __future__ import annotations

import click

from oarlock.cli.arguments.command_words import WithCommand
from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.cli.session.signals import leaving_in_order
from oarlock.cli.session.streams import print_captured, streams
from oarlock.engines.engine import engine_of
from oarlock.errors import JobError, OarlockError
from oarlock.run.run_state import RunState
from oarlock.screens.output import complain


@click.command("exec", cls=WithCommand)
@run_argument
@click.option("--task", "wanted", metavar="TASK", help="The task. Default: the leader.")
@json_option("exit code, stdout and stderr of COMMAND as JSON")
def verb(name: str | None, wanted: str | None, as_json: bool, words: tuple[str, ...]) -> int:
    """Run a command beside a task of a run.

    It runs in the task's pod and folder, with the task's variables except for the addresses of other tasks.
    The exit code is the command's.
    """
    run = find_run.recorded(name)
    if not words:
        raise click.UsageError(f"no command; for example: oarlock exec {run.name} -- nvidia-smi")
    engine = engine_of(run)
    with leaving_in_order():
        engine.refresh(run)
        task = _task(run.state(), wanted)
        used = streams(as_json=as_json, reads_terminal=False)
        code = engine.exec(run, task, words, used, complain)
    print_captured(code, used)
    return code


def _task(state: RunState, wanted: str | None) -> str:
    if wanted is not None and wanted not in state.tasks:
        raise JobError(f"{state.run} has no task {wanted}; it has {', '.join(state.tasks)}")
    if wanted is not None:
        return wanted
    if state.leader is None:
        raise OarlockError(f"{state.run} has no task yet")
    return state.leader.name
