"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # only the shell's completion needs it
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of runs in the shell."""
    from click.shell_completion import CompletionItem

    from oarlock.records import runs
    from oarlock.screens.ansi import visible

    found = [run.name for run in runs.all_runs()]
    return [CompletionItem(name) for name in found if name.startswith(incomplete) and visible(name) == name]


def run_argument(verb: F) -> F:
    """Add [RUN]: a name or the beginning of one; by default the newest run."""
    return click.argument("name", metavar="[RUN]", required=False, shell_complete=run_names)(verb)


def json_option(what: str) -> Callable[[F], F]:
    """Add --json; `what` says what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}.")
