"""Whether a new run mounts another run's claim: then it can read what the other has left there."""

from __future__ import annotations

from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.lifecycle.connect import api_for, explained
from oarlock.engines.kubernetes.manifests.pod_template import claim_name
from oarlock.engines.shared import specs
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder


def is_mounted_by(job: Job, run: RunFolder) -> bool:
    """Whether a run of this job mounts the claim of `run`, by name, namespace and cluster."""
    if not identity.is_on_cluster(run):
        return False
    claim, theirs = claim_name(job), specs.job_of(run.job_file.read_text(), str(run.job_file))
    if claim is None or claim != claim_name(theirs):
        return False
    with explained():
        here, there = api_for(job), identity.reach(run)
    return (here.server, here.namespace) == (there.server, there.namespace)
