"""`oarlock doctor`: what works on this machine or on a cluster, and why something does not."""

from __future__ import annotations

import platform
import sys

import click

from oarlock import __version__
from oarlock.cli.arguments.options import json_option
from oarlock.cli.doctor_checks import framework_imports, machine
from oarlock.screens.output import hint, print_json, say

_MARKS = {
    "ok": ("ok", "green"),
    **{state: (state, "yellow") for state in ("warning", "missing", "unknown")},
}
_WIDTHS = {"local": 13, "kubernetes": 33}  # room for networkpolicies.networking.k8s.io


@click.command("doctor")
@click.option("--on", type=click.Choice(["local", "kubernetes"]), default="local", help="What to check.")
@click.option("--namespace", metavar="NAME", help="The cluster's namespace. Default: the context's.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: the current one.")
@click.option("--image", metavar="IMAGE", help="An image that your runs use on the cluster.")
@json_option("all findings as JSON")
def verb(on: str, namespace: str | None, context: str | None, image: str | None, as_json: bool) -> int:
    """Check what works on this machine or on a cluster.

    Nothing is created on a cluster. The exit code is 1 if nothing could run; a missing framework, or a check
    that gets no answer, does not count.
    """
    if on == "local" and (namespace or context or image):
        raise click.UsageError("--namespace, --context and --image go with --on kubernetes")
    if not as_json:
        say(f"oarlock {__version__}, Python {platform.python_version()} ({sys.executable})", bold=True)
    if on == "kubernetes":
        from oarlock.cli.doctor_checks import cluster_access

        findings = cluster_access.findings(context, namespace, image)
        checks = [_told(found, as_json, _WIDTHS[on]) for found in findings]
        found = []
    else:
        checks = [_told(check(), as_json, _WIDTHS[on]) for check in machine.CHECKS]
        found = [
            _told(framework_imports.probe(name), as_json, _WIDTHS[on]) for name in framework_imports.NAMES
        ]
    is_able = all(check["state"] != "failed" for check in checks)
    if as_json:
        python = {"version": platform.python_version(), "executable": sys.executable}
        print_json(
            {"oarlock": __version__, "python": python, "ok": is_able, "checks": checks, "frameworks": found}
        )
    elif is_able:
        hint("oarlock run -n 2 train.py" if on == "local" else "oarlock run --on kubernetes -n 2 train.py")
    return 0 if is_able else 1


def _told(finding: dict[str, object], as_json: bool, width: int) -> dict[str, object]:
    """Printed as soon as it is known: importing a framework takes seconds."""
    if not as_json:
        mark, colour = _MARKS.get(str(finding["state"]), (str(finding["state"]), "red"))
        fix = f"; {finding['fix']}" if finding["fix"] else ""
        say(mark.ljust(8), nl=False, fg=colour)
        say(f" {finding['name']!s:<{width}} {finding['detail']}{fix}")
    return finding
