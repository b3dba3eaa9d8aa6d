"""How the verbs print: lines, tables, JSON, and the hint for the next command.

The only place that writes to a terminal, `live` apart: whatever a record, a cluster, a file name or an
error says, its control characters arrive spelled out. A program's output keeps its colors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from oarlock.screens.ansi import json_safe, resolve, visible


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
    """Ask the user a yes-or-no question. Raises UsageError if there is no terminal to ask on."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; --yes skips the question")
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


def flush() -> None:
    """Before anything goes to stderr: both may end in one file."""
    sys.stdout.flush()
