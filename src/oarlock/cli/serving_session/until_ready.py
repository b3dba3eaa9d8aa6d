"""Start a model server, wait until it answers, and say where it is."""

from __future__ import annotations

from dataclasses import asdict

from oarlock.cli.session import foreground
from oarlock.engines.engine import Engine, engine_of
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.screens.follow_screen import Interrupts
from oarlock.screens.output import complain, hint, print_json_line, say
from oarlock.serving.fleet import listener
from oarlock.serving.fleet.announcement import Announcement
from oarlock.system.polling import wait_for


def serve(engine: Engine, order: ServeOrder, name: str | None, *, detach: bool, as_json: bool) -> int:
    """Serve, and follow the server unless detached. Returns the exit code."""
    if listener.reachable(order.settings.host):
        who = "anyone who has the token" if order.settings.token_file else "anyone"
        complain(f"{order.settings.host}: other machines can reach this server, and it answers {who}")
    with Interrupts() as interrupts:
        watch = Watch(engine.serve(order, name, _Waiting(interrupts).goes_on))
        engine = engine_of(watch.run)
        if detach or as_json:
            found = _ready(engine, watch.run, interrupts)
            if found is None and not interrupts.count:
                return foreground.finish(watch.run, watch.run.state(), as_json)
            if found is not None:
                _tell(watch.run, found, as_json)
            if detach:
                return 0
        elif (found := engine.announced(watch.run)) is not None:  # it answers already
            _tell(watch.run, found, as_json)
        return foreground.started(watch, interrupts, as_json)


class _Waiting:
    """What the user sees while a server starts, and whether they still wait for it."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._told = ""

    def goes_on(self, problem: str) -> bool:
        if problem and problem != self._told:
            self._told = problem
            complain(problem)
        return not self._interrupts.count


def _ready(engine: Engine, run: RunFolder, interrupts: Interrupts) -> Announcement | None:
    """Wait until the server answers; None if it ends before that, or on Ctrl-C."""
    found: list[Announcement] = []
    with engine.following(run) as is_live:

        def has_come() -> bool:
            is_over = not is_live()
            announced = engine.announced(run)
            found.extend([announced] if announced is not None and not is_over else [])
            return bool(found) or is_over or interrupts.count > 0

        wait_for(has_come, "answer of the server", None)
    return found[0] if found else None


def _tell(run: RunFolder, found: Announcement, as_json: bool) -> None:
    if as_json:
        print_json_line({"kind": "serving", "run": run.name, **asdict(found)})
        return
    for line in found.lines():
        say(line)
    hint(f"oarlock logs -f {run.name}")
