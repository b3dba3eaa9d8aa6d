"""What a run would create and need, and what would refuse it: without a cluster, then by the cluster.

Creates nothing. The result is plain data, as `oarlock plan --json` prints it.
"""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api import quantity
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import NOWHERE, Object
from oarlock.engines.kubernetes.manifests import default_images, objects, packing, pod_template
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.engines.kubernetes.manifests.payload import Parcel
from oarlock.engines.kubernetes.plan import quota_use, serve_plan
from oarlock.errors import OarlockError
from oarlock.job.job_file import JobFile
from oarlock.units import amount

_LARGEST = 5
_GPU = "nvidia.com/gpu"


def plan(jobfile: JobFile, run: str) -> dict[str, Any]:
    """The whole plan; without an answer, `cluster` is None and `unreachable` says why."""
    parcel = packing.pack(jobfile, run)
    known = describe(parcel, jobfile.folder)
    settings = parcel.job.kubernetes
    cluster, why = None, None
    try:
        cluster = on_cluster(Api(settings.context, settings.namespace), parcel, known)
    except OarlockError as problem:
        why = str(problem)
    is_fine = cluster is None or not cluster["problems"]
    return {**known, "cluster": cluster, "unreachable": why, "ok": is_fine}


def describe(parcel: Parcel, folder: Path) -> dict[str, Any]:
    """What is known without a cluster."""
    groups = [_group(parcel, group) for group in parcel.groups]
    spec = json.loads(parcel.spec)
    total = {key: sum(group["machines"] * group[key] for group in groups) for key in ("cpu", "memory", "gpu")}
    return {
        "run": parcel.run,
        "objects": objects.names(objects.standalone(parcel)),
        "groups": groups,
        "total": {"machines": sum(group["machines"] for group in groups), **total},
        "claims": _claims(parcel),
        "program": {"folder": str(folder), **_program(parcel.program), "withheld": list(parcel.withheld)},
        "pip": spec["pip"],
        "ingest": spec["ingest"]
        and {
            "where": spec["ingest"]["where"],
            "key": spec["ingest"]["key"],
            "data": spec["folders"]["data"],
        },
        "serve": serve_plan.describe(parcel.job, parcel.framework),
        "network": parcel.job.network,
        "warnings": list(parcel.warnings),
    }


def on_cluster(api: Api, parcel: Parcel, known: dict[str, Any]) -> dict[str, Any]:
    """The cluster's part, and `known` without objects that exist. Raises ApiError without an answer."""
    parcel, claims = replace(parcel, owner=api.user), known["claims"]
    answered = [_try_pod(api, parcel, group) for group in parcel.groups]
    foreign = _look_up(api, parcel, claims)
    there = {f"PersistentVolumeClaim/{claim['name']}" for claim in claims if claim["state"] == "exists"}
    known["objects"] = [name for name in known["objects"] if name not in there]
    new = [claim for claim in objects.claims(parcel) if _is_new(claim, claims)]
    refused = [one["refusal"] for _, one in answered]
    others = [_try(api, manifest) for manifest in (objects.job(parcel, parcel.leader), *new)]
    # A refusal of every pod is shown once.
    admission = [one for _, one in answered] + [
        one for _, one in others if one["refusal"] is not None and one["refusal"] not in refused
    ]
    admission += foreign
    samples = [(pod, group.count) for (pod, _), group in zip(answered, parcel.groups, strict=True)]
    quotas, why = _quotas(api, parcel, samples, new)
    missing = [claim["name"] for claim in claims if claim["state"] == "missing"]
    problems = [
        *(f"{one['what']}: {one['refusal']}" for one in admission if one["refusal"] is not None),
        *(_too_little(room) for room in quotas or [] if not room.fits),
        *(f"there is no claim {name} in namespace {api.namespace}" for name in missing),
    ]
    return {
        "namespace": api.namespace,
        "context": api.context,
        "server": api.server,
        "admission": admission,
        "quotas": None if quotas is None else [_room(room) for room in quotas],
        "unknown": why,
        "problems": problems,
    }


def _group(parcel: Parcel, group: Group) -> dict[str, Any]:
    settings = parcel.job.kubernetes
    image = parcel.images[group.name]
    image_from = "role" if group.part.image else "job" if settings.image else _default(parcel, image)
    spec = pod_template.template(parcel, group, None)["spec"]
    usage = quota_use.of_pod({"spec": spec})
    return {
        "group": group.name,
        "role": group.role,
        "machines": group.count,
        "image": image,
        "image_from": image_from,
        "cpu": float(usage.get("requests.cpu", 0)),
        "memory": int(usage.get("requests.memory", 0)),
        "gpu": int(usage.get(f"requests.{_GPU}", 0)),
        "host_network": bool(spec.get("hostNetwork")),
    }


def _default(parcel: Parcel, image: str) -> str:
    """Where the image comes from; not every version of a framework has a known image."""
    if parcel.framework == "none":
        return "default"
    here = default_images.installed(parcel.framework)
    differs = parcel.framework == "torch" and here is not None and f":{here}-" not in image
    return f"default for {parcel.framework}" + (f" (here: {here})" if differs else "")


def _claims(parcel: Parcel) -> list[dict[str, Any]]:
    created = {claim["metadata"]["name"]: claim["spec"] for claim in objects.claims(parcel)}
    settings = parcel.job.kubernetes
    named = [name] if (name := pod_template.claim_name(parcel.job)) else []
    named += [
        pod_template.volume_claim(parcel.job, name) for name, one in settings.volumes.items() if not one.empty
    ]
    return [_claim(name, created.get(name)) for name in dict.fromkeys(named)]


def _claim(name: str, spec: Object | None) -> dict[str, Any]:
    """A claim; its `state` is to be created, exists or missing, and existing if it was not checked."""
    size = spec and int(quantity.parse(spec["resources"]["requests"]["storage"]))
    access = spec and spec["accessModes"][0]
    return {
        "name": name,
        "state": "to be created" if spec else "existing",
        "size": size,
        "access": access,
        "class": spec and spec.get("storageClassName"),
    }


def _program(packed: bytes) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        sizes = {member.name: member.size for member in archive}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_LARGEST]
    return {
        "files": len(sizes),
        "size": sum(sizes.values()),
        "compressed": len(packed),
        "largest": [{"file": name, "size": sizes[name]} for name in largest],
    }


def _try_pod(api: Api, parcel: Parcel, group: Group) -> tuple[Object, dict[str, Any]]:
    template = pod_template.template(parcel, group, NOWHERE)
    metadata = {**template["metadata"], "generateName": f"{parcel.name_of(group)}-"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    kept, answer = _try(api, pod)
    return kept, {**answer, "what": f"pod of {group.name}"}


def _try(api: Api, manifest: Object) -> tuple[Object, dict[str, Any]]:
    """The object as the server would keep it, with its defaults; unchanged if the server refuses it."""
    metadata = manifest["metadata"]
    answer = {"what": f"{manifest['kind']} {metadata.get('name', '')}", "refusal": None, "fix": None}
    try:
        return api.create(manifest, dry_run=True), answer
    except ApiError as error:
        if error.is_transient or error.status == 401:
            raise
        if error.status == 409 and manifest["kind"] == "Job":
            run = metadata["name"].removesuffix("-lead")
            taken = f"there is a run called {run} in namespace {api.namespace}"
            return manifest, {**answer, "refusal": taken, "fix": "choose another --name"}
        problem = diagnose.explain(error)
        return manifest, {**answer, "refusal": problem.what, "fix": problem.fix or None}


def _look_up(api: Api, parcel: Parcel, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the claims with those on the cluster; claims of other users are refused."""
    foreign: list[dict[str, Any]] = []
    for claim in claims:
        try:
            found = api.find("PersistentVolumeClaim", claim["name"])
        except ApiError as error:
            if error.status != 403:
                raise
            continue  # this user may not see it
        if found is not None:
            if claim["state"] == "to be created" and (why := objects.not_ours(found, parcel)):
                foreign.append(
                    {"what": f"PersistentVolumeClaim {claim['name']}", "refusal": why, "fix": None}
                )
            spec = found["spec"]
            claim["state"] = "exists"
            claim["size"] = int(quantity.parse(spec["resources"]["requests"]["storage"]))
            claim["access"] = spec["accessModes"][0]
            claim["class"] = spec.get("storageClassName")
        elif claim["state"] == "existing":
            claim["state"] = "missing"
    return foreign


def _is_new(manifest: Object, claims: list[dict[str, Any]]) -> bool:
    name = manifest["metadata"]["name"]
    return any(claim["name"] == name and claim["state"] == "to be created" for claim in claims)


def _quotas(
    api: Api, parcel: Parcel, samples: Sequence[tuple[Object, int]], claims: list[Object]
) -> tuple[list[quota_use.Room] | None, str | None]:
    try:
        quotas = api.all("ResourceQuota")
    except ApiError as error:
        if error.status != 403:
            raise
        return None, "you may not list resourcequotas: cannot tell whether it fits"
    others = [one for one in objects.standalone(parcel) if one["kind"] != "PersistentVolumeClaim"]
    return quota_use.rooms(quotas, samples, [*others, *claims]), None


def _room(room: quota_use.Room) -> dict[str, Any]:
    return {
        "quota": room.quota,
        "resource": room.resource,
        "used": _number(room.used),
        "hard": _number(room.hard),
        "needed": _number(room.needed),
        "after": _number(room.after),
        "fits": room.fits,
    }


def _number(amount: Decimal) -> float | int:
    return int(amount) if amount == math.floor(amount) else float(amount)


def _too_little(room: quota_use.Room) -> str:
    needed, used, hard = (amount(one, room.resource) for one in (room.needed, room.used, room.hard))
    return f"quota {room.quota} does not fit: {room.resource} {used} of {hard} used, {needed} needed"
