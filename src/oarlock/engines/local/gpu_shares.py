"""Which GPUs of this machine each task of a run gets.

Only the records of living runs say which are taken, so that a run that is gone keeps none.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from oarlock.engines.known_engines import traits_of
from oarlock.engines.local import gpu_devices
from oarlock.engines.local.gpu_devices import Devices
from oarlock.engines.shared import specs
from oarlock.errors import OarlockError
from oarlock.job.model import Job, Role
from oarlock.program import frameworks
from oarlock.records import runs
from oarlock.run.cluster import TRAINERS
from oarlock.run.gpu_facts.gpu_view import CUDA, CUDA_ORDER, Gpus
from oarlock.system.polling import wait_for
from oarlock.wording import listed

_PATIENCE = 60.0  # seconds for other clients that start runs to choose theirs


@contextmanager
def choosing(job: Job) -> Iterator[None]:
    """Keep other clients of this user from choosing GPUs, until the record says which are taken."""
    if not asked(job):
        yield
        return
    root = runs.home() / "runs"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / ".gpus.lock").open("w") as lock:
        try:
            wait_for(lambda: _locked(lock.fileno()), "choice of GPUs by another run", _PATIENCE)
        except TimeoutError as late:
            raise OarlockError(str(late)) from None
        yield


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    return True


def give(job: Job, folder: Path, run: str) -> Gpus:
    """The GPUs of each task. Raises OarlockError, with the runs that have them, if too few are free."""
    needs = _needs(specs.roles(job))
    hidden: dict[str, list[str]] = {task: [] for task, count in needs.items() if count == 0}
    if not asked(job):
        return Gpus(hidden)
    env = {**os.environ, **job.env}
    devices = gpu_devices.find(env)
    if not devices.all:
        return Gpus(hidden)  # the program finds out, and `run` has said so
    taken = taken_by(devices, but=run)
    free = [gpu for gpu in devices.visible if gpu.key not in taken]
    if asked(job) > len(free):
        raise OarlockError(_refusal(asked(job), len(free), devices, taken))
    ids = iter([gpu.id for gpu in free])
    shares = {task: [next(ids) for _ in range(count)] for task, count in needs.items() if count is not None}
    is_one_each = all(len(gpus) == 1 for task, gpus in shares.items() if task.startswith(TRAINERS))
    return Gpus(
        shares,
        devices.make,
        by_bus=devices.make == "nvidia" and CUDA not in env and CUDA_ORDER not in env,
        by_local_rank=is_one_each and frameworks.framework_of(job, folder) == "torch",
    )


def asked(job: Job) -> int:
    """How many GPUs the job asks for."""
    return sum(
        part.replicas.max * (part.gpu or 0) for role in specs.roles(job).values() for part in role.parts
    )


def taken_by(devices: Devices, but: str = "") -> dict[str, str]:
    """The run that has each GPU, by its key: as far as runs of this user asked for them."""
    found: dict[str, str] = {}
    for run in runs.all_runs():
        try:
            is_here = traits_of(run).files_are_here and run.elsewhere() is None
            if run.name == but or not is_here or not run.is_held():
                continue
            ids = [gpu for gpus in run.spec().gpus.tasks.values() for gpu in gpus]
        except (OSError, OarlockError):
            continue  # deleted since, damaged, or a later version's
        found.update({gpu.key: run.name for word in ids if (gpu := devices.called(word)) is not None})
    return found


def _needs(roles: Mapping[str, Role]) -> dict[str, int | None]:
    """GPUs of each task. None: all that there are, for a trainer of a job that asks for none and does not
    say 0."""
    has_any = any(part.gpu for role in roles.values() for part in role.parts)
    found: dict[str, int | None] = {}
    for name, role in roles.items():
        unsaid = None if name in TRAINERS and not has_any else 0
        each = [
            unsaid if part.gpus_each is None else part.gpus_each
            for part in role.parts
            for _ in range(part.replicas.max * part.processes)
        ]
        found.update({f"{name}-{index}": count for index, count in enumerate(each)})
    return found


def _refusal(wanted: int, free: int, devices: Devices, taken: Mapping[str, str]) -> str:
    there = len(devices.all)
    text = f"the job asks for {_gpus(wanted)}, and this machine has {there}"
    if devices.limited_by:
        text += f" ({devices.limited_by} allows {len(devices.visible)})"
    holders = Counter(taken[gpu.key] for gpu in devices.visible if gpu.key in taken)
    if wanted <= len(devices.visible):
        names = listed([f"{name} has {count}" for name, count in holders.items()], "and")
        first = next(iter(holders))
        return f"{text}, {free or 'none'} of them free: {names}; wait for it, or `oarlock stop {first}`"
    return f"{text}; ask for fewer workers, or for fewer GPUs with --set roles.worker.gpu=0"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
