"""Start a run and, unless detached, follow it until it ends: what `run` and `ingest` have in common.

What only following needs is imported after the start: the run's own imports do not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from oarlock.engines.engine import Engine, Sending
from oarlock.engines.known_engines import ENGINES
from oarlock.job.job_file import JobFile
from oarlock.records.run_folder import RunFolder
from oarlock.screens import travel_text
from oarlock.screens.follow_screen import Interrupts
from oarlock.screens.output import complain, hint, print_json_line, say

if TYPE_CHECKING:
    from oarlock.records.watch import Watch

_SOME_ENGINES = (
    "machines",
    "namespace",
    "context",
    "ingress",
    "gateway",
)  # options that not every engine takes


def check_options(engine: Engine, given: Mapping[str, Any]) -> None:
    """Refuse options that the engine does not take. Raises click.UsageError."""
    for option in _SOME_ENGINES:
        if given.get(option) and option not in engine.traits.options:
            raise click.UsageError(not_for(option, engine.name))


def not_for(option: str, on: str) -> str:
    """The message for an option that the engine does not take."""
    others = [f"--on {name}" for name, listed in ENGINES.items() if option in listed.traits.options]
    return f"--{option} is for {' and '.join(others)}, not for --on {on}"


def start(engine: Engine, jobfile: JobFile, name: str | None, *, detach: bool, as_json: bool) -> int:
    """Start a run of one task that reads no input, and follow it. Returns the exit code."""
    with Interrupts() as interrupts:
        watch = send(engine, jobfile, name)
        if not detach:
            from oarlock.cli.session import foreground

            return foreground.started(watch, interrupts, as_json)
    leave(watch.run, as_json)
    return 0


def send(
    engine: Engine, jobfile: JobFile, name: str | None, machines: int | None = None, stdin: int | None = None
) -> Watch:
    """Start a run, and say which files of the program's folder are sent."""
    printed: list[str] = []  # once, even if the name is taken and the program is packed again

    def on_send(sending: Sending) -> None:
        lines = travel_text.lines(jobfile.folder, *sending)
        for line in lines if not printed else []:
            complain(line)
        printed.extend(lines)

    run = engine.start(jobfile, name, machines=machines, on_send=on_send, stdin=stdin)
    from oarlock.records.watch import Watch

    return Watch(run)


def leave(run: RunFolder, as_json: bool) -> None:
    """Say how to reattach to a run that continues without this client."""
    if as_json:
        from oarlock.screens import json_shape

        print_json_line({"kind": "state", **json_shape.of_run(run, run.state())})
        return
    say(run.name)
    hint(f"oarlock attach {run.name}")
