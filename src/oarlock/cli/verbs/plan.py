"""`oarlock plan`: what a run would create on a cluster, what it would take, and whether it fits."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
from oarlock.screens import travel_text
from oarlock.screens.output import hint, print_block, print_json, print_table, say
from oarlock.units import plural, size

if TYPE_CHECKING:  # loaded only when the verb is called
    from oarlock.engines.kubernetes.manifests.payload import Parcel

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
    type=click.Choice(["kubernetes"]),
    expose_value=False,
    help="As for `run`: only a run on a cluster has a plan.",
)
@json_option("the plan as JSON")
def verb(as_json: bool, **given: Any) -> int:
    """Show what a run would create on a cluster, and whether it fits.

    Creates nothing: it asks the cluster for a dry run. The exit code is 1 if the cluster would refuse the run
    or has no room for it. Without a cluster, the rest is shown. Options come before TARGET.
    """
    from oarlock.engines.kubernetes.manifests import packing
    from oarlock.engines.kubernetes.plan import preview

    jobfile = load(given, is_here=False)
    job = jobfile.job
    name = run_name(job.name, given["name"]) if given["name"] else f"{job.name}-xxxx"
    parcel = packing.pack(jobfile, name)
    told = preview.describe(parcel, jobfile.folder)
    cluster, why = _ask(parcel, told)
    is_fine = cluster is None or not cluster["problems"]
    if as_json:
        print_json({**told, "cluster": cluster, "unreachable": why, "ok": is_fine})
        return 0 if is_fine else 1
    _print_job(told)
    if cluster is None:
        say()
        say(f"the cluster was not asked: {why}", lines=True)
        return 0
    _print_cluster(cluster)
    if is_fine:
        hint("oarlock run --on kubernetes")
    return 0 if is_fine else 1


def _ask(parcel: Parcel, told: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    from oarlock.engines.kubernetes.api.client import Api
    from oarlock.engines.kubernetes.plan import preview
    from oarlock.errors import OarlockError

    settings = parcel.job.kubernetes
    try:
        return preview.on_cluster(Api(settings.context, settings.namespace), parcel, told), None
    except OarlockError as problem:
        return None, str(problem)


def _print_job(told: dict[str, Any]) -> None:
    from oarlock.agent.protocol.pod_paths import PORT

    total = told["total"]
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
        for group in told["groups"]
    ]
    everything = (f"{total['cpu']:g}", _memory(total["memory"]), str(total["gpu"] or "-"))
    print_table(_GROUPS, [*rows, ("total", "", str(total["machines"]), *everything, "", "")])
    print_block("creates", told["objects"])
    print_block("claims", [_claim(claim) for claim in told["claims"]] or ["none"])
    program = told["program"]
    print_block(
        "program",
        [
            f"{program['folder']}: {size(program['size'])} in {plural(program['files'], 'file')}, "
            f"{size(program['compressed'])} compressed",
            *(f"  {size(one['size']):>8}  {one['file']}" for one in program["largest"]),
            *travel_text.left(program["withheld"]),
        ],
    )
    if told["ingest"]:
        print_block("ingest", [_INGEST[told["ingest"]["where"]].format(**told["ingest"])])
    if told["serve"]:
        print_block("serve", _serving(told["serve"]))
    if told["pip"]:
        print_block("pip", told["pip"])
    if told["warnings"]:
        print_block("warnings", told["warnings"])
    if told["network"] == "private":
        print_block("network", ["private has no effect here: every pod has its own network"])
    if exposed := [group["group"] for group in told["groups"] if group["host_network"]]:
        print_block("hostNetwork", _HOST_NETWORK.format(", ".join(exposed), PORT).splitlines())


def _serving(told: dict[str, Any]) -> list[str]:
    pods = "1 pod" if told["pods"] == "1" else f"{told['pods']} pods"
    gpus = f", {plural(told['gpu'], 'GPU')}" if told["gpu"] else ""
    condition = f" if {told['when']}" if told["when"] else ""
    needs = f"{told['cpu']:g} CPU, {_memory(told['memory'])}{gpus} and {told['image']}"
    return [
        f"after the training, with `oarlock run --serve`{condition}, or at any time with `oarlock serve`:",
        f"{pods} with {needs}",
        *told["objects"],
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
    from oarlock.engines.kubernetes.api import quantity

    shown = [quantity.text(Decimal(str(room[key])), room["resource"]) for key in ("used", "hard", "after")]
    return (room["quota"], room["resource"], *shown, "" if room["fits"] else "does not fit")


def _memory(count: int) -> str:
    from oarlock.engines.kubernetes.api import quantity

    return quantity.text(Decimal(count), "memory")
