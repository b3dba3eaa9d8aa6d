"""The spec of a run on this machine: what its agent is started with. Creates nothing."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints import bucket
from oarlock.engines.shared import specs
from oarlock.errors import JobError, OarlockError
from oarlock.job.model import Duration, Job
from oarlock.records import runs
from oarlock.system import private_network, processes


def spec_for(job: Job, folder: Path, record: Path, machines: int = 1) -> Spec:
    """Return the spec of a run whose record is at `record`. Raises JobError if it has too many machines."""
    _check_machines(job, machines)
    is_linux = sys.platform == "linux"
    spec = specs.resolve(job, folder, record.name)
    folders = _folders(job, folder, record)
    return replace(
        spec,
        folder=str(record),
        cwd=str(folder),
        folders={**folders, "data": specs.with_key(folders["data"], spec.ingest)},
        snapshots=_place(job.storage.snapshots, folder) if job.storage.snapshots else "",
        weights=_place(job.storage.weights, folder) if job.storage.weights else "",
        cache=str(runs.home() / "cache"),
        pip=list(job.pip),
        machines=machines,
        network=job.network,
        warm=bool(job.warm) and is_linux,
        keep=job.warm.seconds if isinstance(job.warm, Duration) and is_linux and machines == 1 else 0.0,
    )


def check_packages(job: Job) -> None:
    """Raise OarlockError if the job needs a package that is not installed here."""
    if job.storage.snapshots and not bucket.is_here():
        raise OarlockError("storage.snapshots needs obstore: pip install 'oarlock[storage]'")
    if "://" in (job.storage.weights or "") and not bucket.is_here():
        raise OarlockError("weights in a bucket need obstore: pip install 'oarlock[storage]'")


def check_snapshots(job: Job, folder: Path) -> None:
    """Raise JobError if the folder of snapshots, or one above it, is a file: the uploader would retry until
    the run ends."""
    asked = job.storage.snapshots or ""
    if not asked or "://" in asked:
        return
    place = Path(_place(asked, folder))
    for path in (place, *place.parents):
        if os.path.isfile(path):  # noqa: PTH113 - false, not an error, below a folder that is not readable
            raise JobError(f"storage.snapshots takes a folder or a URL, and {path} is a file")


def check_network(job: Job) -> None:
    """Raise OarlockError if the job wants a private network and this machine allows none."""
    if job.network == "private" and (why := private_network.refusal()) is not None:
        raise OarlockError(
            f"this machine does not allow network: private ({why}); "
            "remove it from the job, or allow user namespaces"
        )


def check_files(tasks: int, machines: int) -> None:
    """Raise OarlockError if the limit of open files is too low for that many tasks."""
    why = processes.lacking_files(math.ceil(tasks / machines))
    if why is not None:
        raise OarlockError(f"{why}; raise that limit, or run fewer tasks")


def _check_machines(job: Job, machines: int) -> None:
    """The leading agent would wait forever for a machine without a task."""
    workers = specs.sizes(job).get("worker", 0)
    if job.roles.worker is not None and not job.roles.worker.is_equal:
        workers = job.roles.worker.replicas.max
    if machines > max(1, workers):
        raise JobError(f"{machines} machines are too many for {workers} workers: each needs at least one")
    if machines > 1 and job.network == "private":
        raise JobError("with network: private all tasks are on one machine; remove --machines")


def _folders(job: Job, folder: Path, record: Path) -> dict[str, str]:
    defaults = {
        "data": runs.home() / "data" / job.name,  # outlives the run: ingest once, train often
        "checkpoints": record / "checkpoints",
        "eval": record / "eval",
        "model": record / "model",
        "logs": record / "tensorboard",
    }
    chosen = {kind: getattr(job.storage, kind) for kind in defaults}
    return {
        kind: str(default) if not chosen[kind] else _place(chosen[kind], folder)
        for kind, default in defaults.items()
    }


def _place(text: str, folder: Path) -> str:
    return text if "://" in text else str(folder / Path(text).expanduser())
