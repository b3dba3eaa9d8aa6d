"""What works here and will fail in pods: packages that no pod has, checkpoints that no pod shares.

Reads the program and what is installed here; asks no cluster. Says nothing about the unknown, such as
the packages of an image that the job names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    if not lacking:
        return ()
    verb = "is" if len(lacking) == 1 else "are"
    unknown = [package for package in lacking if packages.is_from_folder(package)]
    warning = (
        f"{listed(lacking, 'and')} {verb} imported, and neither {listed(images, 'nor')} nor pip: "
        f"in the job brings {'it' if len(lacking) == 1 else 'them'}"
    )
    offered = [packages.pinned(package) for package in lacking if package not in unknown]
    if offered:
        warning += f"; add: pip: [{', '.join([*job.pip, *offered])}]"
    if unknown:
        warning += f"; {listed(unknown, 'and')} came from a folder here: copy it beside the program"
    return (warning,)


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
