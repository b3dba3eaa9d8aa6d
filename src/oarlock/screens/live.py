"""The live display: output scrolls above, one line per task stays below. The only place that imports rich."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from oarlock.records.log_blocks import Block
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState
from oarlock.run.task_state import TaskState
from oarlock.screens import event_text
from oarlock.screens.ansi import as_it_is, resolve, rows, visible
from oarlock.screens.follow_screen import in_order
from oarlock.units import duration, plural

_INTERVAL = 0.1  # seconds between two redraws with nothing to scroll
_METRICS = 4  # the number of their column
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
_STATES = {"running": "green", "failed": "red", "killed": "yellow", "finished": "blue", "pending": "dim"}


class Display:
    """A screen that scrolls output above one line per task."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._drawn_at = float("-inf")
        self._live.start()

    def show(
        self,
        state: RunState,
        happened: Sequence[Event],
        output: Sequence[Block],
        unfinished: Mapping[str, bytes] | None = None,
    ) -> None:
        """Print new output and update the lines of the tasks."""
        width = max(map(len, (*state.tasks, "oarlock")))
        above = [shown for item in in_order(happened, output) for shown in _above(item, state, width)]
        now = time.monotonic()
        if not above and now - self._drawn_at < _INTERVAL:
            return
        self._drawn_at = now
        with self.console:  # in one write: a bar must not stay for a moment below the line that it became
            if above:
                self.console.print(*above, sep="", end="", soft_wrap=True)
            self._live.update(draw(state, *self.console.size, unfinished), refresh=True)

    def say(self, text: str) -> None:
        """Print a line of Oarlock's own above them."""
        self.console.print(_text(f"oarlock | {text}", "bold yellow"), soft_wrap=True)

    def close(self) -> None:
        """Stop updating."""
        self._live.stop()


def draw(
    state: RunState, width: int, height: int, unfinished: Mapping[str, bytes] | None = None
) -> RenderableType:
    """Return the heading, as many tasks as fit, those that are not running first, and their bars."""
    bars = [_bar(task, text) for task, text in (unfinished or {}).items()][: max(1, height // 4)]
    room = max(1, height - 4 - len(bars))
    tasks = list(state.tasks.values())
    shown = tasks if len(tasks) <= room else sorted(tasks, key=lambda task: task.state == "running")[:room]
    table = Table.grid(padding=(0, 2))
    for number in range(7):
        table.add_column(no_wrap=number != _METRICS)  # the column that shrinks on a narrow terminal
    for task in shown:
        table.add_row(*_row(task, bar=20 if width >= 100 else 10 if width >= 70 else 0))
    hidden = [_text(f"and {plural(len(tasks) - len(shown), 'more task')}", "dim")] if shown != tasks else []
    return Group(_heading(state), table, *hidden, *bars)


def _heading(state: RunState) -> Text:
    facts = [state.state, f"generation {state.generation}", plural(state.restarts, "restart")]
    if state.created is not None:
        facts.append(duration(time.time() - state.created))
    if best := event_text.best_score(state):
        facts.append(f"best {best}")
    return Text.assemble(
        _text(state.run, "bold"), "  ", _text("  ".join(facts), "dim"), overflow="ellipsis", no_wrap=True
    )


def _row(task: TaskState, bar: int) -> list[RenderableType]:
    done: RenderableType = ""
    if bar and task.total and task.step is not None:
        done = ProgressBar(total=task.total, completed=min(task.step, task.total), width=bar)
    gpu = f"GPU {event_text.gpu(task)}" if task.gpu and task.state == "running" else ""
    metrics = "  ".join(filter(None, [event_text.rate(task), *event_text.metrics(task), gpu]))
    restarts = f"restarted {task.starts - 1}x" if task.starts > 1 else ""
    return [
        _text(task.name, _colour(task.name)),
        _text(task.state, _STATES.get(task.state, "")),
        _text(event_text.steps(task)),
        done,
        _text(metrics, no_wrap=True),
        _text(event_text.eta(task)),
        _text(restarts, "yellow"),
    ]


def _bar(task: str, text: bytes) -> Text:
    """A line that a task has begun and not ended."""
    row = Text.assemble(_prefix(task, 0), _coloured(resolve(text.decode(errors="replace"))))
    row.no_wrap, row.overflow = True, "crop"
    return row


def _above(item: Event | Block, state: RunState, width: int) -> list[RenderableType]:
    if not isinstance(item, Block):
        text = event_text.notable(item, state)
        return [_own(text, width)] if text else []
    shown: list[RenderableType] = []
    if item.skipped:
        shown.append(_own(event_text.skipped(item.task, item.skipped, state.run), width))
    text = as_it_is(item.data)
    if text is not None:
        return [*shown, _plain(item.task, text, width)]
    prefix = _prefix(item.task, width)
    lines = [row for line in item.lines() for row in rows(line.text)]
    return [*shown, *(Text.assemble(prefix, _coloured(row), "\n") for row in lines)]


def _plain(task: str, text: str, width: int) -> Segments:
    """Lines that need no change. `Text` takes ten times as long."""
    prefix = Segment(_prefix(task, width).plain, Style.parse(_colour(task)))
    return Segments([part for line in text.split("\n") for part in (prefix, Segment(f"{line}\n"))])


def _own(text: str, width: int) -> Text:
    return _text(f"{'oarlock'.ljust(width)} | {text}", "bold").append("\n")


def _prefix(task: str, width: int) -> Text:
    return _text(f"{task.ljust(width)} | ", _colour(task))


def _coloured(line: str) -> Text:
    return Text.from_ansi(line) if "\x1b" in line else Text(line)


def _text(text: str, style: str = "", *, no_wrap: bool = False) -> Text:
    """Text from any source but a task's output. `Text` itself passes escape sequences on."""
    return Text(visible(text), style, no_wrap=no_wrap or None, overflow="ellipsis" if no_wrap else None)


def _colour(task: str) -> str:
    number = task.rpartition("-")[2]
    return _COLOURS[int(number) % len(_COLOURS)] if number.isdecimal() else ""
