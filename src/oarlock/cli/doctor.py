"""`oarlock doctor`: what works on this machine, and why something would not."""

from __future__ import annotations

import platform
import sys

import click

from oarlock import __version__
from oarlock.cli import frameworks, machine
from oarlock.cli.options import json_option
from oarlock.cli.output import hint, print_json

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "missing": ("missing", "yellow")}


@click.command("doctor")
@json_option("all findings as JSON")
def verb(as_json: bool) -> int:
    """Say what works on this machine, and why something would not.

    Exit code 1 if nothing could run here; a missing framework is no fault.
    """
    if not as_json:
        click.secho(
            f"oarlock {__version__}, Python {platform.python_version()} ({sys.executable})", bold=True
        )
    checks = [_told(check(), as_json) for check in machine.CHECKS]
    found = [_told(frameworks.probe(name), as_json) for name in frameworks.NAMES]
    is_able = all(check["state"] != "failed" for check in checks)
    if as_json:
        python = {"version": platform.python_version(), "executable": sys.executable}
        print_json(
            {"oarlock": __version__, "python": python, "ok": is_able, "checks": checks, "frameworks": found}
        )
    elif is_able:
        hint("oarlock run -n 2 train.py")
    return 0 if is_able else 1


def _told(finding: dict[str, object], as_json: bool) -> dict[str, object]:
    """Printed as soon as it is known: importing a framework takes seconds."""
    if not as_json:
        mark, colour = _MARKS.get(str(finding["state"]), (str(finding["state"]), "red"))
        fix = f"; {finding['fix']}" if finding["fix"] else ""
        click.echo(
            click.style(mark.ljust(8), fg=colour) + f" {finding['name']!s:<13} {finding['detail']}{fix}"
        )
    return finding
