"""Pack a job file into a parcel: read the program's folder, choose images, write the agents' spec."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import yaml

from oarlock.agent.protocol.pod_paths import PORT, SECRET, STORE, program_folder, record_folder
from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints import initial_weights
from oarlock.checkpoints.manifest import FILE_NAME, seal
from oarlock.engines.kubernetes.manifests import default_images, groups, pod_gpus, pod_warnings
from oarlock.engines.kubernetes.manifests.payload import PART, Parcel
from oarlock.engines.shared import specs
from oarlock.errors import JobError
from oarlock.job.job_file import JobFile
from oarlock.job.model import Job, Limits, to_data
from oarlock.program import agent_zip, bundle, frameworks

_WEIGHTS = ".oarlock-weights"  # in the program's folder
_RENDEZVOUS = 1800.0  # seconds, unless the job says otherwise


def pack(
    jobfile: JobFile, run: str, part: int = PART, is_new: bool = False, id: str = "", owner: str = ""
) -> Parcel:
    """Pack a run. Raises JobError for a folder that is too large to travel.

    `is_new` says that the run's name was generated, so that no earlier run can have left anything under it.
    """
    job = jobfile.job
    skipped: list[str] = []
    weights = _handed_over(job.storage.weights, skipped.append)
    packed = bundle.pack(jobfile.folder, weights)
    if job.program is not None and job.program not in packed.files:
        raise JobError(
            f"{job.program} is ignored and would stay behind; `!{job.program}` in .oarlockignore includes it"
        )
    framework = frameworks.framework_of(job, jobfile.folder)
    found = groups.of(job)
    chosen = {group.name: default_images.choose(job, group.part, framework) for group in found}
    lacking = dict.fromkeys(package for image in chosen.values() for package in image.pip)
    spec = spec_for(job, jobfile.folder, run, (*lacking, *job.pip), id)
    # Without a claim every leading pod looks like the first.
    spec = replace(spec, is_new=is_new and job.kubernetes.claim is not None)
    if weights:
        place = Path(next(iter(weights))).parts[:2]
        spec = replace(spec, weights="/".join((program_folder(run), *place)))
    return Parcel(
        run=run,
        job=job,
        groups=found,
        images={name: image.name for name, image in chosen.items()},
        spec=spec.to_json(),
        written=yaml.safe_dump(to_data(job), sort_keys=False),
        agent=agent_zip.pack(),
        program=packed.data,
        files=len(packed.files),
        size=packed.size,
        withheld=packed.withheld,
        token=secrets.token_hex(32),
        framework=framework,
        part=part,
        id=spec.id,
        owner=owner,
        warnings=(*skipped, *pod_warnings.of(jobfile, framework, found, chosen)),
    )


def spec_for(job: Job, folder: Path, run: str, pip: tuple[str, ...] = (), id: str = "") -> Spec:
    """The spec that all pods share; a pod learns its own index from its variables."""
    record = record_folder(run)
    spec = specs.resolve(job, folder, run)
    if job.limits.rendezvous == Limits().rendezvous:  # images have to be pulled, nodes may have to be added
        spec = replace(spec, limits=replace(spec.limits, rendezvous=_RENDEZVOUS))
    folders = _folders(job, record)
    if spec.ingest is not None:
        where = "leader" if groups.ingests_once(job) else "each"
        spec = replace(spec, ingest=replace(spec.ingest, where=where))
    return replace(
        spec,
        folder=record,
        gpus=pod_gpus.of(job, frameworks.framework_of(job, folder)),
        cwd=program_folder(run),
        folders={**folders, "data": specs.with_key(folders["data"], spec.ingest)},
        snapshots=_place(job.storage.snapshots) or "",
        weights=_place(job.storage.weights) or "",
        machines=sum(group.count for group in groups.of(job)),
        brings_crew=False,
        port=PORT,
        id=id or secrets.token_hex(8),
        pip=list(pip),
        secret=f"{SECRET}/token",
        cache="" if job.kubernetes.claim is None else f"{STORE}/cache",
        claim="" if job.kubernetes.claim is None else "shared" if job.kubernetes.claim.shared else "leader",
        is_replaced=True,
    )


def _handed_over(place: str | None, notify: Callable[[str], None]) -> dict[str, Path]:
    """The checkpoint that travels with the program: one in a folder of this machine. A relative folder, or
    one that is not here, is in the pods. `notify` gets a line for each damaged one. Raises JobError."""
    folder, step = initial_weights.split(place or "")
    if not folder.startswith("/") or not Path(folder).is_dir():
        return {}
    found = initial_weights.choose(Path(folder), step, notify)
    if isinstance(found, str):
        raise JobError(f"cannot load the initial weights: {found}")
    names = [*found.manifest["files"], FILE_NAME]
    # Other weights get another folder: the run keeps what it has from the same place.
    place = f"{_WEIGHTS}/{seal(found.manifest)}/{found.name}"
    return {f"{place}/{name}": found.path / name for name in names}


def _folders(job: Job, record: str) -> dict[str, str]:
    defaults = {
        "data": f"{STORE}/data/{job.name}",
        "checkpoints": f"{record}/checkpoints",
        "eval": f"{record}/eval",
        "model": f"{record}/model",
        "logs": f"{record}/tensorboard",
    }
    return {kind: _place(getattr(job.storage, kind)) or default for kind, default in defaults.items()}


def _place(asked: str | None) -> str | None:
    """A relative folder is on the claim: below the program it would be lost with the pod."""
    if asked is None or "://" in asked or asked.startswith("/"):
        return asked
    return f"{STORE}/{Path(asked).as_posix()}"
