"""Follow a run in the foreground: the right screen, Ctrl-C, the last lines, the exit code."""

from __future__ import annotations

import os
import sys

from oarlock.engines.engine import Engine, engine_of
from oarlock.records import log_files
from oarlock.records.log_blocks import Block
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.run.run_state import RunState
from oarlock.screens import json_shape, summary
from oarlock.screens.event_text import exit_code
from oarlock.screens.follow_screen import MOST_BEHIND, Detached, Interrupts, Screen, until_end
from oarlock.screens.json_lines import JsonLines
from oarlock.screens.output import flush, hint, print_json_line, say
from oarlock.screens.plain import Plain

_RECENT = 10  # lines


def started(watch: Watch, interrupts: Interrupts, as_json: bool) -> int:
    """Follow a run that this client has started or resumed; return the exit code."""
    engine = engine_of(watch.run)
    if engine.traits.interrupt_stops:
        return _own(engine, watch, interrupts, as_json)
    return visit(watch, interrupts, as_json, is_new=True)


def _own(engine: Engine, watch: Watch, interrupts: Interrupts, as_json: bool) -> int:
    """The first Ctrl-C stops the run, the second kills it, the third detaches."""
    run, screen = watch.run, _screen(watch, as_json)

    def on_interrupt(count: int) -> None:
        if count > 2:
            raise Detached
        screen.say(f"stopping {run.name} (Ctrl-C again to kill)" if count == 1 else f"killing {run.name}")
        engine.cancel(run, now=count > 1)

    try:
        return finish(run, until_end(watch, screen, interrupts, on_interrupt), as_json)
    except Detached:
        say(f"detached; {run.name} may still be stopping", err=True)
        hint(f"oarlock status {run.name}")
        return 130


def visit(watch: Watch, interrupts: Interrupts, as_json: bool, is_new: bool = False) -> int:
    """Follow a run that does not depend on this client: Ctrl-C detaches, and never stops it."""
    run = watch.run
    if not as_json and not run.is_running():
        return finish(run, run.state(), as_json)
    # JSON has all events; a person wants to see the current state, and the last lines that led to it.
    recent: list[Block] = []
    if not as_json and not is_new:
        watch.skip()
        recent = list(log_files.read(watch, log_files.latest(run), _RECENT))
    screen = _screen(watch, as_json)
    screen.show(watch.state, [], recent)

    def on_interrupt(count: int) -> None:
        raise Detached

    try:
        return finish(run, until_end(watch, screen, interrupts, on_interrupt), as_json)
    except Detached:
        say(f"detached; {run.name} continues", err=True)
        hint(f"oarlock attach {run.name}")
        return 0


def finish(run: RunFolder, state: RunState, as_json: bool) -> int:
    """Print the result of a run; return its exit code."""
    if as_json:
        print_json_line({"kind": "state", **json_shape.of_run(run, state)})
        return exit_code(state)
    flush()
    is_good = state.state == "succeeded"
    for number, line in enumerate(summary.lines(run, state)):
        colour = ("green" if is_good else "red") if number == 0 else None
        say(line, err=not is_good, fg=colour, bold=number == 0)
    if state.failure is None:  # else the last line says how to see more
        hint(summary.next_command(run, state))
    return exit_code(state)


def _screen(watch: Watch, as_json: bool) -> Screen:
    if as_json:
        return JsonLines()
    if not sys.stdout.isatty():
        return Plain()
    watch.most_behind = MOST_BEHIND
    if os.environ.get("TERM") == "dumb":
        return Plain()
    from oarlock.screens.live import Display

    return Display()
