"""The record of a run on this machine, as it is before its agent starts."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path

import yaml

from oarlock.engines.local import gpu_shares
from oarlock.engines.shared import local_spec, specs
from oarlock.job.job_file import JobFile
from oarlock.job.model import Job, to_data
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run import cluster, run_events
from oarlock.run.typed import VERSION
from oarlock.system import machine_id
from oarlock.system.atomic_file import write_durably


def fill(draft: RunFolder, jobfile: JobFile, machines: int, *, is_new: bool) -> None:
    """Write the record of a new run. `is_new`: its name was made up, so that no earlier run had it."""
    header = f"# {jobfile.source or jobfile.job.name}, as it ran in {jobfile.folder}\n"
    _write(draft.job_file, header + yaml.safe_dump(to_data(jobfile.job), sort_keys=False))
    _write_spec(jobfile.job, jobfile.folder, draft, machines, is_new=is_new)
    _announce(jobfile.job, draft)
    _write(draft.path / "token", secrets.token_hex(32))  # shared by the run's agents and clients
    draft.keep_room()


def renew(run: RunFolder) -> None:
    """Prepare the record of a run that has ended for its next agent; the job stays unchanged.

    Raises OarlockError if the record is damaged.
    """
    before = run.spec()
    job = specs.job_of(run.job_file.read_text(), str(run.job_file))
    local_spec.check_network(job)
    run.keep_room()
    with gpu_shares.choosing(job):
        _write_spec(job, Path(before.cwd), run, before.machines)
    run.result_file.unlink(missing_ok=True)


def _announce(job: Job, draft: RunFolder) -> None:
    tasks = [task.name for task in cluster.form(specs.sizes(job))]
    event = {"t": time.time(), "kind": "run", "job": job.name, "engine": "local", "tasks": tasks}
    event.update(host=machine_id.name(), version=VERSION)
    _write(draft.events_file, run_events.encode(event) + "\n")


def _write_spec(job: Job, folder: Path, run: RunFolder, machines: int, is_new: bool = False) -> None:
    record = runs.home() / "runs" / run.name  # where the draft will be
    spec = local_spec.spec_for(job, folder, record, machines)
    spec = replace(spec, is_new=is_new, gpus=gpu_shares.give(job, folder, run.name))
    _write(run.spec_file, spec.to_json())


def _write(path: Path, text: str) -> None:
    """Readable only by this user."""
    write_durably(path, text.encode())
