"""`oarlock logs`: the output of all tasks, merged by time."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import find_run
from oarlock.engines.engine import follow
from oarlock.records import log_files
from oarlock.records.log_blocks import Block, LogLine
from oarlock.records.log_files import Choice
from oarlock.records.watch import Watch
from oarlock.screens import event_text
from oarlock.screens.follow_screen import MOST_BEHIND, leaving
from oarlock.screens.last_line import LastLine
from oarlock.screens.output import complain, flush, print_json_line, print_output
from oarlock.units import size


@click.command("logs")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends; Ctrl-C detaches.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--since", metavar="WHEN", help="Only newer lines: 10m, or a time such as 2025-11-15T10:00.")
@click.option("--task", "tasks", multiple=True, metavar="TASK", help="Only this task; repeatable.")
@click.option("--failed", is_flag=True, help="Only the task that failed.")
@click.option("--first-error", is_flag=True, help="Only the task that failed, starting at its first error.")
@click.option(
    "--generation", type=click.IntRange(min=1), metavar="N", help="Only this generation. Default: the latest."
)
@click.option("--previous", is_flag=True, help="Only the generation before the latest.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@json_option("a JSON object per line: time, generation, task, text")
def verb(
    name: str | None,
    follow: bool,
    tail: int | None,
    since: str | None,
    tasks: tuple[str, ...],
    failed: bool,
    first_error: bool,
    generation: int | None,
    previous: bool,
    timestamps: bool,
    as_json: bool,
) -> None:
    """Print the output of a run's tasks.

    Prints all tasks of the latest generation, merged by time.
    """
    _exclude({"--generation": generation, "--previous": previous})
    _exclude({"--task": tasks, "--failed": failed, "--first-error": first_error})
    _exclude({"--follow": follow, "--first-error": first_error})
    run = find_run.find(name, with_logs=True)
    choice = log_files.choose(
        run,
        tasks=tasks,
        failed=failed or first_error,
        generation=generation,
        previous=previous,
        since=since,
    )
    show = _Printer(timestamps, as_json)
    watching = Watch(run)
    watching.skip(takes_in=False)
    if tail is None:
        for task, missing in log_files.dropped(watching, choice):
            complain(f"the first {size(missing)} of {task} were dropped: limits.logs keeps the newest lines")
    if not follow:
        if first_error:
            lines = log_files.from_first_error(watching, choice)
            for line in lines if tail is None else deque(lines, tail):
                show.line(line)
        else:
            show.all(log_files.read(watching, choice, tail))
        return
    with leaving(run):
        show.all(log_files.read(watching, choice, tail))
        _follow(watching, choice, show)


def _exclude(given: dict[str, Any]) -> None:
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} and {names[1]} cannot be combined")


class _Printer:
    def __init__(self, timestamps: bool, as_json: bool) -> None:
        self.timestamps = timestamps
        self.as_json = as_json
        self.colours = sys.stdout.isatty()
        self._last = LastLine()

    def all(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if self.as_json:
                for line in block.lines():
                    self.line(line)
            else:
                self._print(block.time, block.task, block.data)

    def line(self, line: LogLine) -> None:
        if self.as_json:
            print_json_line(asdict(line))
        else:
            self._print(line.time, line.task, line.text.encode())

    def unfinished(self, begun: Mapping[str, bytes]) -> None:
        if not self.as_json:
            self._last.show(begun)

    def note(self, text: str) -> None:
        self._last.clear()
        flush()
        complain(text)

    def close(self) -> None:
        self._last.clear()

    def _print(self, time: str, task: str, data: bytes) -> None:
        self._last.clear()
        stamp = f"{time} " if self.timestamps else ""
        print_output(f"{stamp}{task} | ", data, colours=self.colours)


def _follow(watching: Watch, choice: Choice, show: _Printer) -> None:
    flush()
    watching.most_behind = MOST_BEHIND if sys.stdout.isatty() else None
    try:
        for _, output in follow(watching):
            for block in filter(choice.wants, output):
                if block.skipped:
                    show.note(event_text.skipped(block.task, block.skipped, watching.run.name))
                show.all([block])
            begun = watching.unfinished.items()
            show.unfinished({task: text for task, text in begun if not choice.tasks or task in choice.tasks})
            flush()
    finally:
        show.close()
