"""`oarlock schema`: for editors that complete and check job files."""

from __future__ import annotations

import click

from oarlock.cli.arguments.options import json_option
from oarlock.job import model
from oarlock.screens.output import print_json


@click.command("schema")
@json_option("JSON (it always does)")
def verb(as_json: bool) -> None:
    """Print the JSON schema of job files."""
    print_json(model.schema())
