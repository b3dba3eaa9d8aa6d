"""`oarlock plan`: what a run would create on a cluster, what it would take, and whether it fits."""

from __future__ import annotations

from decimal import Decimal
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
from oarlock.engines.engine import engine_called
from oarlock.engines.known_engines import PLANNING
from oarlock.screens import travel_text
from oarlock.screens.output import hint, print_block, print_json, print_table, say
from oarlock.units import amount, plural, size

_GROUPS = ("GROUP", "ROLE", "MACHINES", "CPU", "MEMORY", "GPU", "IMAGE", "FROM")
_HOST_NETWORK = """\
pods of {} listen on their nodes' own addresses: port {} and the framework's ports
can be reached from the nodes' network, and the run's NetworkPolicy does not apply to them"""
_INGEST = {
    "leader": "in the leader's pod, before the training, into {data}; the other pods see it there",
    "each": "in the leader's pod, before the training, into {data}; pods of other roles than ps copy it "
    "from there: they share no volume",
}
_QUOTAS = ("QUOTA", "RESOURCE", "USED", "HARD", "AFTER", "")


@click.command("plan", cls=JobCommand, context_settings=SETTINGS)
@job_options
@cluster_options
@click.option(
    "--on",
    type=click.Choice(PLANNING),
    default=PLANNING[0],
    help="As for `run`: only a run on a cluster has a plan.",
)
@json_option("the plan as JSON")
def verb(on: str, as_json: bool, **given: Any) -> int:
    """Show what a run would create on a cluster, and whether it fits.

    Creates nothing: it asks the cluster for a dry run. The exit code is 1 if the cluster would refuse the run
    or has no room for it. Without a cluster, the rest is shown. Options come before TARGET.
    """
    engine = engine_called(on)
    jobfile = load(given, is_here=not engine.traits.sends_program)
    job = jobfile.job
    name = run_name(job.name, given["name"]) if given["name"] else f"{job.name}-xxxx"
    planned = engine.plan(jobfile, name)
    if as_json:
        print_json(planned)
    else:
        _print_plan(planned, on)
    return 0 if planned["ok"] else 1


def _print_plan(planned: dict[str, Any], on: str) -> None:
    """Print each section that the engine has."""
    if "groups" in planned:
        _print_groups(planned["groups"], planned["total"])
    _print_sections(planned)
    if planned.get("unreachable") is not None:
        say()
        say(f"the cluster was not asked: {planned['unreachable']}", lines=True)
        return
    if planned.get("cluster"):
        _print_cluster(planned["cluster"])
    if planned["ok"]:
        hint(f"oarlock run --on {on}")


def _print_groups(groups: list[dict[str, Any]], total: dict[str, Any]) -> None:
    rows = [
        (
            group["group"],
            group["role"],
            str(group["machines"]),
            f"{group['cpu']:g}",
            _memory(group["memory"]),
            str(group["gpu"] or "-"),
            group["image"],
            group["image_from"],
        )
        for group in groups
    ]
    everything = (f"{total['cpu']:g}", _memory(total["memory"]), str(total["gpu"] or "-"))
    print_table(_GROUPS, [*rows, ("total", "", str(total["machines"]), *everything, "", "")])


def _print_sections(planned: dict[str, Any]) -> None:
    from oarlock.agent.protocol.pod_paths import PORT

    if "objects" in planned:
        print_block("creates", planned["objects"])
    if "claims" in planned:
        print_block("claims", [_claim(claim) for claim in planned["claims"]] or ["none"])
    if "program" in planned:
        print_block("program", _program(planned["program"]))
    if ingest := planned.get("ingest"):
        print_block("ingest", [_INGEST[ingest["where"]].format(**ingest)])
    if planned.get("serve"):
        print_block("serve", _serving(planned["serve"]))
    if planned.get("pip"):
        print_block("pip", planned["pip"])
    if planned.get("warnings"):
        print_block("warnings", planned["warnings"])
    if planned.get("network") == "private":
        print_block("network", ["private has no effect here: every pod has its own network"])
    if exposed := [group["group"] for group in planned.get("groups", ()) if group["host_network"]]:
        print_block("hostNetwork", _HOST_NETWORK.format(", ".join(exposed), PORT).splitlines())


def _program(program: dict[str, Any]) -> list[str]:
    return [
        f"{program['folder']}: {size(program['size'])} in {plural(program['files'], 'file')}, "
        f"{size(program['compressed'])} compressed",
        *(f"  {size(one['size']):>8}  {one['file']}" for one in program["largest"]),
        *travel_text.left(program["withheld"]),
    ]


def _serving(serving: dict[str, Any]) -> list[str]:
    pods = "1 pod" if serving["pods"] == "1" else f"{serving['pods']} pods"
    gpus = f", {plural(serving['gpu'], 'GPU')}" if serving["gpu"] else ""
    condition = f" if {serving['when']}" if serving["when"] else ""
    needs = f"{serving['cpu']:g} CPU, {_memory(serving['memory'])}{gpus} and {serving['image']}"
    return [
        f"after the training, with `oarlock run --serve`{condition}, or at any time with `oarlock serve`:",
        f"{pods} with {needs}",
        *serving["objects"],
    ]


def _print_cluster(cluster: dict[str, Any]) -> None:
    where = f"namespace {cluster['namespace']} of {cluster['context'] or cluster['server']}"
    answers = [
        f"{one['what']}: " + (f"refused: {one['refusal']}" if one["refusal"] else "would be accepted")
        for one in cluster["admission"]
    ]
    print_block(where, [*answers, *([cluster["unknown"]] if cluster["unknown"] else [])])
    for fix in dict.fromkeys(one["fix"] for one in cluster["admission"] if one["fix"]):
        say(f"  fix: {fix}")
    if cluster["quotas"]:
        say()
        print_table(_QUOTAS, [_quota(room) for room in cluster["quotas"]])
    elif not cluster["unknown"]:
        say("  no quota applies")
    if cluster["problems"]:
        is_refused = any(one["refusal"] for one in cluster["admission"])
        say()
        say(f"it {'would be refused' if is_refused else 'does not fit'}", fg="red")


def _claim(claim: dict[str, Any]) -> str:
    facts = [claim["state"]]
    facts += [_memory(claim["size"])] if claim["size"] else []
    facts += [claim[key] for key in ("access", "class") if claim[key]]
    return f"{claim['name']}: {', '.join(facts)}"


def _quota(room: dict[str, Any]) -> tuple[str, ...]:
    shown = [amount(Decimal(str(room[key])), room["resource"]) for key in ("used", "hard", "after")]
    return (room["quota"], room["resource"], *shown, "" if room["fits"] else "does not fit")


def _memory(count: int) -> str:
    return amount(Decimal(count), "memory")
