"""The live display: output scrolls above, one line per task stays below. The only place that imports rich."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from oarlock.cli import telling
from oarlock.cli.following import in_order
from oarlock.cli.output import duration, plural
from oarlock.cli.terminal import resolve
from oarlock.events import Event, RunState, TaskState
from oarlock.watch import LogLine

_INTERVAL = 0.1  # seconds between two redraws with nothing to scroll
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
_STATES = {"running": "green", "failed": "red", "killed": "yellow", "finished": "blue", "pending": "dim"}


class Display:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._drawn_at = float("-inf")
        self._live.start()

    def show(self, state: RunState, happened: Sequence[Event], lines: Sequence[LogLine]) -> None:
        width = max(map(len, (*state.tasks, "oarlock")))
        above = [text for item in in_order(happened, lines) if (text := _above(item, state, width))]
        if above:
            self.console.print(Text("\n").join(above), soft_wrap=True)
        now = time.monotonic()
        if above or now - self._drawn_at >= _INTERVAL:
            self._drawn_at = now
            self._live.update(draw(state, self.console.height), refresh=True)

    def say(self, text: str) -> None:
        self.console.print(Text(f"oarlock | {text}", "bold yellow"), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def draw(state: RunState, height: int) -> RenderableType:
    """The heading and as many tasks as the screen has room for, those that need a look first."""
    room = max(1, height - 4)
    tasks = list(state.tasks.values())
    shown = tasks if len(tasks) <= room else sorted(tasks, key=lambda task: task.state == "running")[:room]
    table = Table.grid(padding=(0, 2))
    for _ in range(7):
        table.add_column(no_wrap=True)
    for task in shown:
        table.add_row(*_row(task))
    hidden = [Text(f"and {plural(len(tasks) - len(shown), 'more task')}", "dim")] if shown != tasks else []
    return Group(_heading(state), table, *hidden)


def _heading(state: RunState) -> Text:
    facts = [state.state, f"generation {state.generation}", plural(state.restarts, "restart")]
    if state.created is not None:
        facts.append(duration(time.time() - state.created))
    return Text.assemble(
        (state.run, "bold"), "  ", ("  ".join(facts), "dim"), overflow="ellipsis", no_wrap=True
    )


def _row(task: TaskState) -> list[RenderableType]:
    bar: RenderableType = ""
    if task.total and task.step is not None:
        bar = ProgressBar(total=task.total, completed=min(task.step, task.total), width=20)
    restarts = f"restarted {task.starts - 1}x" if task.starts > 1 else ""
    return [
        Text(task.name, _colour(task.name)),
        Text(task.state, _STATES.get(task.state, "")),
        Text(telling.steps(task)),
        bar,
        Text("  ".join(filter(None, [telling.rate(task), *telling.metrics(task)]))),
        Text(telling.eta(task)),
        Text(restarts, "yellow"),
    ]


def _above(item: Event | LogLine, state: RunState, width: int) -> Text | None:
    if isinstance(item, LogLine):
        prefix = Text(f"{item.task.ljust(width)} | ", _colour(item.task))
        return prefix.append_text(_coloured(resolve(item.text)))
    text = telling.notable(item, state)
    return Text(f"{'oarlock'.ljust(width)} | {text}", "bold") if text else None


def _coloured(line: str) -> Text:
    return Text.from_ansi(line) if "\x1b" in line else Text(line)


def _colour(task: str) -> str:
    number = task.rpartition("-")[2]
    return _COLOURS[int(number) % len(_COLOURS)] if number.isdecimal() else ""
