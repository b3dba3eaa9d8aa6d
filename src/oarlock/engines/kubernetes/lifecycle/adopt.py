"""Runs that another machine sent to the current cluster: list them, and create a record for one."""

from __future__ import annotations

import os
from pathlib import Path

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import ID, LEAD, MANAGED, RUN, selecting
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete, submit
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder


def adopt(name: str) -> RunFolder | None:
    """Create the record of a run in the current context's namespace; None if there is no such run."""
    if not has_kubeconfig():
        return None
    try:
        api = Api()
        leads = api.all("Job", f"{selecting(name)},{LEAD}=true")
        if not leads:
            return None
        code = api.get("ConfigMap", f"{name}-code-0")["data"]
    except OarlockError:
        return None
    lead = leads[0]
    created = submit.seconds(lead["metadata"]["creationTimestamp"])
    spec = stop_delete.spec_in(code, name)

    def fill(draft: RunFolder) -> None:
        identity.write(draft, api, lead["metadata"]["labels"].get(ID, ""))
        identity.note(draft, lead)
        submit.fill(draft, code["job.yaml"], spec, created)

    return runs.create(spec.job, fill, name)


def unrecorded() -> list[str]:
    """Return the runs in the current context's namespace that have no record here.

    Raises OarlockError if the cluster does not answer.
    """
    if not has_kubeconfig():
        return []
    leads = Api().all("Job", f"{MANAGED}=oarlock,{LEAD}=true")
    known = {run.name for run in runs.all_runs()}
    return sorted({lead["metadata"]["labels"][RUN] for lead in leads} - known)


def has_kubeconfig() -> bool:
    """Whether there may be a cluster to look at."""
    return "KUBECONFIG" in os.environ or Path("~/.kube/config").expanduser().exists()
