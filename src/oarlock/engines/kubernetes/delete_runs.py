"""Deletes runs from a cluster, some together: runs of one job share its claims."""

from __future__ import annotations

from collections.abc import Collection

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.claims import board_deployment
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete
from oarlock.engines.kubernetes.lifecycle.connect import api_of, explained
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder


def delete(chosen: Collection[RunFolder], *, now: bool, volumes: bool) -> list[str]:
    """As `Engine.delete`; returns the claims that are kept."""
    reached = [(run, api_of(run)) for run in chosen]
    claims: dict[str, tuple[Api, Object]] = {}  # by uid: runs of one job share them
    with explained():
        for run, api in reached:
            for claim in stop_delete.claims_of(api, run.state().job):
                claims[claim["metadata"]["uid"]] = api, claim
                if volumes and stop_delete.is_mine(api, claim):
                    _require_alone(api, run, claim, chosen)
        for run, api in reached:
            patience = stop_delete.GOING + (0 if now else run.grace())
            board_deployment.delete(api, identity.of(run))  # it mounts the claims
            stop_delete.delete(api, identity.of(run), now=now, patience=patience)
        going = [one for one in claims.values() if volumes and stop_delete.is_mine(*one)]
        for api, claim in going:
            stop_delete.delete_claims(api, [claim], stop_delete.GOING)
    return [claim["metadata"]["name"] for api, claim in claims.values() if (api, claim) not in going]


def _require_alone(api: Api, run: RunFolder, claim: Object, chosen: Collection[RunFolder]) -> None:
    """Raise if runs of the job are on the cluster that are not deleted together with this one."""
    names = [one.name for one in chosen]
    job = run.state().job
    boards = board_deployment.users_of(api, job) - set(names)
    others = sorted({*stop_delete.users_of(api, job, but=names), *boards})
    if others:
        together = " ".join([*names, *others])
        raise OarlockError(
            f"claim {claim['metadata']['name']} is also used by {', '.join(others)}; "
            f"`oarlock delete --volumes {together}` deletes them together"
        )
