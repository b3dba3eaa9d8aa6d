"""`oarlock version`."""

from __future__ import annotations

import platform

import click

from oarlock import __version__
from oarlock.cli.arguments.options import json_option
from oarlock.screens.output import print_json, say


@click.command("version")
@json_option("the versions of Oarlock and Python as JSON")
def verb(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"oarlock": __version__, "python": platform.python_version()})
    else:
        say(f"oarlock {__version__}")
