"""`oarlock render`: the objects of a run as YAML, for `kubectl apply`. Asks no cluster."""

from __future__ import annotations

from typing import Any

import click

from oarlock.cli.arguments.job_options import (
    SETTINGS,
    JobCommand,
    cluster_options,
    job_options,
    load,
    run_name,
)
from oarlock.cli.arguments.options import json_option
from oarlock.screens.output import print_document, print_json


@click.command("render", cls=JobCommand, context_settings=SETTINGS)
@job_options
@cluster_options
@json_option("a JSON List of the objects")
def verb(as_json: bool, **given: Any) -> None:
    """Print a run as YAML for `kubectl apply`.

    Asks no cluster. The run supervises itself, without Oarlock on your machine. Each rendering is a new run
    with its own token. Oarlock's options come before TARGET: everything after it, or after --, goes to the
    program.
    """
    from oarlock.engines.kubernetes.manifests import yaml_file

    jobfile = load(given, is_here=False)
    rendered = yaml_file.render(jobfile, run_name(jobfile.job.name, given["name"]))
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": rendered.objects})
    else:
        print_document(yaml_file.to_yaml(rendered))
