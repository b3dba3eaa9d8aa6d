"""The job of a run that another machine sent, as far as it counts on this one.

Anyone who may write a ConfigMap in the namespace can write that job. Its `env` would decide which server sees
this user's credentials (AWS_ENDPOINT_URL) and which code runs here (PYTHONPATH, LD_PRELOAD). Its
`serve.predict` would decide which file of this machine is read. What this user types with --set counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from oarlock.errors import OarlockError
from oarlock.job.job_file import with_sets
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import complain
from oarlock.wording import printable


def settled(job: Job, run: RunFolder, sets: Sequence[str], is_here: bool) -> Job:
    """Return the job with `sets`, without what must not count. `is_here`: its server runs on this machine.

    Pods keep `env`: they have the credentials of their namespace, not those of this user. Raises
    OarlockError.
    """
    _refuse_predict(job, run, sets)
    env = _env(job) if is_here else {}
    settled = with_sets(_without_predict(_without_env(job) if is_here else job), sets)
    unset = sorted(env.keys() - _env(settled).keys() - os.environ.keys())
    if unset:
        complain(
            f"{run.name} was not sent from here, so its env has no effect on this machine: if you trust it, "
            f"set {printable(', '.join(unset))} in your environment"
        )
    return settled


def _refuse_predict(job: Job, run: RunFolder, sets: Sequence[str]) -> None:
    is_named_here = any(one.partition("=")[0].strip() == "serve.predict" for one in sets)
    if job.serve is not None and job.serve.predict is not None and not is_named_here:
        raise OarlockError(
            f"{run.name} was not sent from here, so its serve.predict chooses no file of this machine: "
            "name your own copy of that file with --set serve.predict=FILE"
        )


def _env(job: Job) -> Mapping[str, str]:
    return {**job.env, **(job.serve.env if job.serve is not None else {})}


def _without_env(job: Job) -> Job:
    serve = msgspec.structs.replace(job.serve, env={}) if job.serve is not None else None
    return msgspec.structs.replace(job, env={}, serve=serve)


def _without_predict(job: Job) -> Job:
    serve = msgspec.structs.replace(job.serve, predict=None) if job.serve is not None else None
    return msgspec.structs.replace(job, serve=serve)
