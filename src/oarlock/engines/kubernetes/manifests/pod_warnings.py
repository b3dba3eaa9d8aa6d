"""What works here and will fail in pods: packages that no pod has, checkpoints that no pod shares.

Reads the program and what is installed here; asks no cluster. Says nothing about the unknown, such as
the packages of an image that the job names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock.agent.ingest.object_origin import SCHEMES
from oarlock.engines.kubernetes.manifests import default_images
from oarlock.engines.kubernetes.manifests.default_images import Image
from oarlock.engines.kubernetes.manifests.groups import Group
from oarlock.job.job_file import JobFile
from oarlock.job.model import Job
from oarlock.program import frameworks, imports, packages
from oarlock.run.cluster import TRAINERS
from oarlock.wording import listed


def of(
    jobfile: JobFile, framework: str, groups: Sequence[Group], images: Mapping[str, Image]
) -> tuple[str, ...]:
    """The warnings about a job, a line each. `images`: by group."""
    found = imports.scan(jobfile.folder, *frameworks.python_of(jobfile.job))
    defaults = list(dict.fromkeys(image.name for image in images.values() if image.is_default))
    unshared = _unshared_checkpoints(jobfile.job, found, groups)
    return (*(_missing_packages(jobfile.job, framework, found, defaults) if defaults else ()), *unshared)


def _missing_packages(
    job: Job, framework: str, found: imports.Imports, images: Sequence[str]
) -> tuple[str, ...]:
    brought = default_images.brings(framework)
    prepared = job.ingest.pip if job.ingest is not None else ()  # installed by every pod but those of ps
    lacking = packages.missing(found.needed, brought, (*job.pip, *(() if "ps" in job.gang else prepared)))
    stored = packages.missing(["obstore"], brought, (*job.pip, *prepared)) and _in_object_storage(job)
    if lacking is None or not (lacking or stored):
        return ()
    unknown = [package for package in lacking if packages.is_from_folder(package)]
    uses = [f"{listed(lacking, 'and')} {'is' if len(lacking) == 1 else 'are'} imported"] if lacking else []
    uses += [f"{listed(stored, 'and')} {'needs' if len(stored) == 1 else 'need'} obstore"] if stored else []
    wanted = list(dict.fromkeys([*lacking, *(["obstore"] if stored else [])]))
    warning = (
        f"{', '.join(uses)}, and neither {listed(images, 'nor')} nor pip: "
        f"in the job brings {'it' if len(wanted) == 1 else 'them'}"
    )
    offered = [packages.pinned(package) for package in wanted if package not in unknown]
    if offered:
        warning += f"; add: pip: [{', '.join([*job.pip, *offered])}]"
    if unknown:
        warning += f"; {listed(unknown, 'and')} came from a folder here: copy it beside the program"
    return (warning,)


def _in_object_storage(job: Job) -> list[str]:
    """The fields of the job for which Oarlock itself uses obstore in the pods."""
    sources = job.ingest.sources.values() if job.ingest is not None else ()
    schemes = {source.url.partition("://")[0].lower() for source in sources}
    needing = {
        "storage.snapshots": bool(job.storage.snapshots),  # in a folder, too
        "storage.weights": "://" in (job.storage.weights or ""),
        "ingest.sources": not schemes.isdisjoint(SCHEMES),
    }
    return [name for name, needs in needing.items() if needs]


def _unshared_checkpoints(job: Job, found: imports.Imports, groups: Sequence[Group]) -> tuple[str, ...]:
    """Every task of an Orbax program writes its part, then waits for the others' parts in the same folder."""
    machines = sum(group.count for group in groups if group.role in TRAINERS)
    claim, place = job.kubernetes.claim, job.storage.checkpoints or ""
    is_elsewhere = "://" in place or place.startswith("/")  # a bucket, or a volume of the job's own
    uses_orbax = any(name.partition(".")[0] == "orbax" for name in found.modules)
    if not uses_orbax or machines < 2 or is_elsewhere or (claim is not None and claim.shared):
        return ()
    return (
        "orbax saves from every task into one folder, and these pods share none: saving will hang; "
        "set kubernetes.claim.shared, with access: ReadWriteMany",
    )
