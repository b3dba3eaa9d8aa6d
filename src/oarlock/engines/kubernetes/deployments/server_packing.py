"""Pack an order into a parcel: find the model, choose the image, read what has to travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from oarlock.engines.kubernetes.api.names import STORE_VOLUME, Object
from oarlock.engines.kubernetes.deployments.server_parcel import (
    PORT,
    Claims,
    Reach,
    ServerParcel,
    access_path,
)
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.manifests import default_images, pod_template
from oarlock.engines.kubernetes.manifests.payload import PART
from oarlock.engines.shared import specs
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError
from oarlock.job.model import Job, to_data
from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import Version, versions
from oarlock.program import agent_zip, model_bundle
from oarlock.records.run_folder import RunFolder
from oarlock.serving.settings import BEST, NEWEST, Settings
from oarlock.system.pods.places import CODE, MODEL, STORE

# What the server needs, each package with the module by which a pod sees whether its image has it.
_NEEDED = {name: name for name in ("numpy", "uvicorn", "httptools", "uvloop", "orjson")}
_FORMATS = {"saved_model": "tensorflow", "torch_export": "torch", "jax_export": "jax"}
_FRAMEWORKS = ("tensorflow", "torch", "jax")


def pack(order: ServeOrder, name: str, *, piece: int = PART, id: str = "", owner: str = "") -> ServerParcel:
    """Pack what is served under a name. Raises JobError if there is no model, or too large a one."""
    sent = _from_elsewhere(order) or _handed_over(order)
    image = default_images.choose(order.job, order.part, sent.framework or order.framework)
    access = _access(order.settings)
    settings = replace(
        order.settings,
        source=sent.source,
        host="0.0.0.0",
        port=PORT,
        replicas=1,  # processes of one pod: more pods are more of them
        token_file=access_path("token") if "token" in access else "",
        tls_cert=access_path("tls.crt") if "tls.crt" in access else "",
        tls_key=access_path("tls.key") if "tls.key" in access else "",
        predict=f"{CODE}/predict.py" if order.settings.predict else "",
    )
    return ServerParcel(
        run=name,
        job=order.job,
        settings=settings,
        image=image.name,
        archive=agent_zip.pack_server(),
        part=order.part,
        pip=(*image.pip, *order.pip),
        needed={**_NEEDED, **({"obstore": "obstore"} if settings.is_in_bucket else {}), **sent.needed},
        env={**order.job.env, **order.env},
        model=sent.model,
        files={"predict.py": _text(order.settings.predict)} if order.settings.predict else {},
        access=access,
        claims=sent.claims,
        reach=Reach(order.host, order.gateway),
        written=yaml.safe_dump(to_data(order.job), sort_keys=False),
        piece=piece,
        id=id,
        owner=owner,
    )


def framework_of(order: ServeOrder) -> str:
    """Return the framework that wrote the model, or `onnx`, as far as that is known here."""
    sent = _from_elsewhere(order) or _handed_over(order)
    return "onnx" if "onnxruntime" in sent.needed else sent.framework or order.framework


@dataclass(frozen=True)
class _Sent:
    """Where the pods find the model, and what they need for it."""

    source: str
    framework: str = ""
    claims: Claims = field(default_factory=Claims)
    model: bytes = b""
    needed: Mapping[str, str] = field(default_factory=dict)


def _from_elsewhere(order: ServeOrder) -> _Sent | None:
    """A model in a bucket, or on the claim of a run on a cluster."""
    run = order.run
    if order.settings.is_in_bucket:
        return _Sent(order.settings.source, _framework_of(run) if identity.is_on_cluster(run) else "")
    if not identity.is_on_cluster(run):
        return None
    folder, framework = run.folder("model"), _framework_of(run)
    return _Sent(folder, framework, Claims() if "://" in folder else _claims(run))


def _handed_over(order: ServeOrder) -> _Sent:
    """A model of this machine, which travels."""
    folder = Path(order.settings.source)
    chosen = _chosen(order.settings, versions(folder))
    try:
        manifest = chosen[-1].manifest() if chosen else None
    except BadManifest as problem:
        raise JobError(str(problem)) from None
    named = [] if manifest is None else [one for one in _FRAMEWORKS if one in manifest.frameworks]
    kind = "" if manifest is None else manifest.format
    return _Sent(
        MODEL,
        _FORMATS.get(kind, next(iter(named), "")),
        model=model_bundle.pack(folder, chosen),
        needed={"onnxruntime": "onnxruntime"} if kind == "onnx" else {},
    )


def _chosen(settings: Settings, found: Sequence[Version]) -> list[Version]:
    """The versions that travel. All of them, if the server has to compare their scores."""
    if settings.versions == BEST:
        return list(found)
    wanted = {*settings.weights, *(() if settings.versions == NEWEST else (int(settings.versions),))}
    missing = wanted - {version.number for version in found}
    if missing:
        there = ", ".join(str(version.number) for version in found) or "none"
        raise JobError(f"{settings.source} has no version {min(missing)}; there is {there}")
    return [version for version in found if version.number in wanted] or list(found[-1:])


def _framework_of(run: RunFolder) -> str:
    modules = run.spec().modules
    return next((name for name in _FRAMEWORKS if name in modules), "")


def _claims(run: RunFolder) -> Claims:
    """All claims that the run's leader mounts, at the same paths, for reading."""
    job = specs.job_of(run.job_file.read_text(), str(run.job_file))
    found = {STORE_VOLUME: (pod_template.claim_name(job), STORE)} if job.kubernetes.claim else {}
    for name, volume in job.kubernetes.volumes.items():
        if not volume.empty:
            found[name] = (pod_template.volume_claim(job, name), volume.path)
    if not found:
        raise JobError(
            f"{run.name} kept its model in its pod: its job has no claim; "
            "with storage.model: s3://... or kubernetes.claim the next run keeps it"
        )
    volumes: list[Object] = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, (claim, _) in found.items()
    ]
    mounts: list[Object] = [
        {"name": name, "mountPath": path, "readOnly": True} for name, (_, path) in found.items()
    ]
    return Claims(tuple(volumes), tuple(mounts), identity.of(run), _is_shared(job))


def _is_shared(job: Job) -> bool:
    settings = job.kubernetes
    access = [settings.claim.access] if settings.claim else []
    access += [volume.access for volume in settings.volumes.values() if not volume.empty]
    return all(one == "ReadWriteMany" for one in access)


def _access(settings: Settings) -> dict[str, bytes]:
    """The files of the Secret, read here."""
    found = {"token": settings.token_file, "tls.crt": settings.tls_cert, "tls.key": settings.tls_key}
    return {name: _content(path) for name, path in found.items() if path}


def _text(path: str) -> str:
    try:
        return _content(path).decode()
    except UnicodeDecodeError:
        raise JobError(f"{path} is not UTF-8 text") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise JobError(f"{path} cannot be read: {problem.strerror}") from None
