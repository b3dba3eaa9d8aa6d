"""`oarlock scale`: another number of workers for a run that is running."""

from __future__ import annotations

import time

import click

from oarlock.cli.arguments.options import json_option, run_names
from oarlock.cli.session import find_run
from oarlock.cli.session.ask_agent import ask, require_running
from oarlock.engines.engine import engine_of
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail
from oarlock.run.run_events import decode
from oarlock.run.run_state import RunState
from oarlock.screens import json_shape
from oarlock.screens.output import complain, print_json, say
from oarlock.system.polling import wait_for
from oarlock.units import plural

_PATIENCE = 60.0  # seconds for the new generation to form
_MOMENT = 3.0  # seconds for an earlier problem to be resolved


@click.command("scale")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] N", shell_complete=run_names)
@json_option("the run's state as JSON")
def verb(words: tuple[str, ...], as_json: bool) -> None:
    """Change how many workers, or replicas of a server, there are.

    Its tasks end and a generation with N workers starts from the last checkpoint. Programs that use
    oarlock.State save first and lose no step. It does not count as a restart. A model server scales
    to N replicas without interruption.
    """
    name, workers = _parse(words)
    run = find_run.find(name)
    require_running(run)
    engine = engine_of(run)
    if run.serving_file.exists():
        engine.scale_server(run, workers)
        if as_json:
            print_json(json_shape.of_run(run, run.state()))
        else:
            say(f"{run.name} answers with {plural(workers, 'replica')}")
        return
    engine.check_scale(run, workers)
    with engine.following(run):
        answer = ask(run, {"ask": "scale", "workers": workers})
        engine.scale(run, workers)
        state = _Forming(run, workers, answer["tasks"], answer["generation"]).wait()
    if as_json:
        print_json(json_shape.of_run(run, state))
        return
    say(f"{run.name} runs with {plural(workers, 'worker')} in generation {state.generation}")


def _parse(words: tuple[str, ...]) -> tuple[str | None, int]:
    *names, count = words
    if len(names) > 1:
        raise click.UsageError(f"expected [RUN] N, found {' '.join(words)}")
    if not count.isdecimal():
        raise click.UsageError(f"{count} is not a number of workers; for example: oarlock scale {words[0]} 4")
    return (names[0] if names else None), int(count)


class _Forming:
    """A generation that is about to form, with `tasks` tasks for that many workers."""

    def __init__(self, run: RunFolder, workers: int, tasks: int, generation: int) -> None:
        self.run = run
        self.workers = workers
        self.tasks = tasks
        self.generation = generation
        self.state = RunState(run.name)
        self._events = Tail(run.events_file)
        self._began = time.monotonic()
        self._reported: str | None = None  # the problem that the user has been shown

    def wait(self) -> RunState:
        """Return the state in which all workers run. Raises OarlockError if that does not come."""
        try:
            wait_for(self._has_formed, "generation", _PATIENCE)
        except TimeoutError:
            raise OarlockError(self._too_few()) from None
        return self.state

    def _has_formed(self) -> bool:
        is_running = self.run.is_running()  # before events are read: what was written by then is seen
        for line in self._events.lines():
            event = decode(line.decode(errors="replace"))
            if event is not None:
                self.state.apply(event)
            if self.state.generation >= self.generation and self._workers == ["running"] * self.tasks:
                return True  # it may have ended since
        if not is_running:
            wanted = plural(self.workers, "worker")
            raise OarlockError(f"{self.run.name} {self.run.state().state} before {wanted} were running")
        self._report_problem()
        return False

    def _report_problem(self) -> None:
        problem = self.state.problem
        if problem not in (None, self._reported) and time.monotonic() > self._began + _MOMENT:
            self._reported = problem
            complain(str(problem))

    @property
    def _workers(self) -> list[str]:
        return [task.state for task in self.state.tasks.values() if task.name.startswith("worker-")]

    def _too_few(self) -> str:
        name, running = self.run.name, self._workers.count("running") * self.workers // self.tasks
        wanted = plural(self.workers, "worker")
        text = f"{name} was asked for {wanted} but has {running} running after {_PATIENCE:g} s"
        if not running:
            return f"{text}; see `oarlock status {name}`"
        return f"{text}; the others join when they start. To undo: oarlock scale {name} {running}"
