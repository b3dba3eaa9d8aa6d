"""`oarlock doctor`: what works on this machine or on a cluster, and why something does not."""

from __future__ import annotations

import platform
import sys

import click

from oarlock import __version__
from oarlock.cli.arguments.options import json_option
from oarlock.engines.before_start import Finding
from oarlock.engines.engine import engine_called
from oarlock.engines.known_engines import TRAINING
from oarlock.screens.output import hint, print_json, say

_MARKS = {
    "ok": ("ok", "green"),
    **{state: (state, "yellow") for state in ("warning", "missing", "unknown")},
}
_DEFAULT = "local"  # as for `run`
_WIDTH, _WIDTH_ON_A_CLUSTER = 13, 33  # room for networkpolicies.networking.k8s.io


@click.command("doctor")
@click.option("--on", type=click.Choice(TRAINING), default=_DEFAULT, help="What to check.")
@click.option("--namespace", metavar="NAME", help="The cluster's namespace. Default: the context's.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: the current one.")
@click.option("--image", metavar="IMAGE", help="An image that your runs use on the cluster.")
@json_option("all findings as JSON")
def verb(on: str, namespace: str | None, context: str | None, image: str | None, as_json: bool) -> int:
    """Check what works on this machine or on a cluster.

    Nothing is created on a cluster. The exit code is 1 if nothing could run; a missing framework, or a check
    that gets no answer, does not count.
    """
    engine = engine_called(on)
    has_cluster = "context" in engine.traits.options
    if not has_cluster and (namespace or context or image):
        raise click.UsageError("--namespace, --context and --image go with --on kubernetes")
    if not as_json:
        say(f"oarlock {__version__}, Python {platform.python_version()} ({sys.executable})", bold=True)
    width = _WIDTH_ON_A_CLUSTER if has_cluster else _WIDTH
    findings = [
        _told(one, as_json, width) for one in engine.check(context=context, namespace=namespace, image=image)
    ]
    found = [one for one in findings if "version" in one]  # of frameworks
    checks = [one for one in findings if "version" not in one]
    is_able = all(check["state"] != "failed" for check in checks)
    if as_json:
        python = {"version": platform.python_version(), "executable": sys.executable}
        print_json(
            {"oarlock": __version__, "python": python, "ok": is_able, "checks": checks, "frameworks": found}
        )
    elif is_able:
        hint(f"oarlock run {'' if on == _DEFAULT else f'--on {on} '}-n 2 train.py")
    return 0 if is_able else 1


def _told(finding: Finding, as_json: bool, width: int) -> Finding:
    """Print a finding as soon as it is known: importing a framework takes seconds."""
    if not as_json:
        mark, colour = _MARKS.get(str(finding["state"]), (str(finding["state"]), "red"))
        fix = f"; {finding['fix']}" if finding["fix"] else ""
        say(mark.ljust(8), nl=False, fg=colour)
        say(f" {finding['name']!s:<{width}} {finding['detail']}{fix}")
    return finding
