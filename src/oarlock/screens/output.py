"""The functions with which verbs print: lines, tables, JSON, and the hint for the next command.

No other module but `live` writes to a terminal. Control characters in records, answers of clusters, file
names and errors are spelled out. The output of a program keeps its colors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from oarlock.screens.ansi import as_it_is, json_safe, rows, visible


def say(text: str = "", *, err: bool = False, nl: bool = True, lines: bool = False, **style: Any) -> None:
    """Print one line; `lines` keeps the line ends inside the text."""
    click.secho(visible(text, lines=lines), err=err, nl=nl, **style)


def complain(text: str) -> None:
    """Print a problem on stderr."""
    say(f"oarlock: {text}", err=True, lines=True)


def hint(command: str) -> None:
    """Print the command to type next, on stderr, so that pipes do not get it."""
    say(f"  {command}", err=True, dim=True)


def confirm(question: str) -> bool:
    """Ask the user a yes-or-no question. Raises UsageError if there is no terminal to ask on."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; --yes skips the question")
    return click.confirm(visible(question), err=True)


def print_output(prefix: str, data: bytes, *, colours: bool = False) -> None:
    """Print lines of a task's output. Most need no change, so that all are written at once."""
    head = visible(prefix)
    text = as_it_is(data)
    if text is not None:
        lines = text.replace("\n", f"\n{head}")
        sys.stdout.write(f"{head}{lines}\n")
        return
    for line in data.split(b"\n"):
        for row in rows(line.decode(errors="replace"), colours):
            sys.stdout.write(f"{head}{row}\n")


def print_document(text: str) -> None:
    """Print a document that is usually piped: unchanged, unless stdout is a terminal."""
    print(visible(text, lines=True) if sys.stdout.isatty() else text, end="")


def redraw(text: str, width: int, *, err: bool = True) -> None:
    """Replace the last line on stderr or stdout, which was `width` wide."""
    click.echo(f"\r{visible(text).ljust(width)}", err=err, nl=False)


def print_block(heading: str, lines: Iterable[str]) -> None:
    """Print a heading and indented lines below it."""
    say()
    say(heading, bold=True)
    for line in lines:
        say(f"  {line}")


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json_safe(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line."""
    click.echo(json_safe(json.dumps(value, ensure_ascii=False)))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in aligned columns."""
    table = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for number, row in enumerate(table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        say(line, bold=number == 0)


def flush() -> None:
    """Flush stdout before something is printed on stderr: both may go to one file."""
    sys.stdout.flush()
