"""How the verbs print: lines, tables, durations, sizes, JSON, and the hint for the next command.

The only place that writes to a terminal, `display` apart: whatever a record, a cluster, a file name or an
error says, its control characters arrive spelled out. A program's output keeps its colors.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from oarlock.cli.terminal import json_safe, resolve, visible


def say(text: str = "", *, err: bool = False, nl: bool = True, lines: bool = False, **style: Any) -> None:
    """One line; `lines`: several, each ending where the text says so."""
    click.secho(visible(text, lines=lines), err=err, nl=nl, **style)


def complain(text: str) -> None:
    """What went wrong, on stderr."""
    say(f"oarlock: {text}", err=True, lines=True)


def hint(command: str) -> None:
    """What to type next. On stderr, so that it never gets into what is piped on."""
    say(f"  {command}", err=True, dim=True)


def confirm(question: str) -> bool:
    return click.confirm(visible(question), err=True)


def print_output(prefix: str, text: str, *, colours: bool = False) -> None:
    """A line that a task wrote."""
    print(f"{visible(prefix)}{resolve(text, colours)}")


def print_document(text: str) -> None:
    """Something that is usually piped on: exactly as it is, unless a terminal shows it."""
    print(visible(text, lines=True) if sys.stdout.isatty() else text, end="")


def redraw(text: str, width: int) -> None:
    """A line on stderr in the place of the last one, which was `width` wide."""
    click.echo(f"\r{visible(text).ljust(width)}", err=True, nl=False)


def print_block(heading: str, lines: Iterable[str]) -> None:
    say()
    say(heading, bold=True)
    for line in lines:
        say(f"  {line}")


def print_json(value: Any) -> None:
    click.echo(json_safe(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    click.echo(json_safe(json.dumps(value, ensure_ascii=False)))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for number, row in enumerate(table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        say(line, bold=number == 0)


def duration(seconds: float | None) -> str:
    """Two units at most: 0.4s, 42s, 1m20s, 2h05m, 3d04h."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes // 1440}d{minutes // 60 % 24:02d}h"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(value: Any) -> str:
    """A metric in a few characters; what is not a number (nan comes as text) as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)[:20]
    return f"{value:.4g}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def flush() -> None:
    """Before anything goes to stderr: both may end in one file."""
    sys.stdout.flush()
