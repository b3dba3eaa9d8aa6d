"""Reach the cluster of a run, and turn what the API server refuses into one line for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oarlock.engines.kubernetes import diagnose
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.errors import OarlockError
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder


def api_for(job: Job) -> Api:
    """Return the cluster that a job names; by default the current context of the kubeconfig."""
    return Api(job.kubernetes.context, job.kubernetes.namespace)


def api_of(run: RunFolder) -> Api:
    """Return the cluster that a run was sent to, in order to act on the run.

    Raises OarlockError if its context leads to another cluster now, or another run has its name.
    """
    with explained():
        api = identity.reach(run)
        identity.require(run, api)
    return api


def api_to_follow(run: RunFolder) -> Api:
    """Return the cluster that a run was sent to, in order to keep its record.

    If another run has its name, the run itself is gone, which its id tells. Runs of earlier versions have no
    id.
    """
    return identity.reach(run) if identity.of(run).id else api_of(run)


@contextmanager
def explained() -> Iterator[None]:
    """Turn an ApiError inside a `with` block into an OarlockError: what is wrong, and what to do about it."""
    try:
        yield
    except ApiError as error:
        problem = diagnose.explain(error)
        raise OarlockError(f"{problem.what}; {problem.fix}") from None
