"""The pod of a task. A pod is a seat: a role and an index, for the tasks of one machine."""

from __future__ import annotations

from oarlock.agent.protocol.pod_paths import SEAT_OFFSET
from oarlock.agent.protocol.spec import Spec
from oarlock.engines.kubernetes.api import names
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import INDEX, ROLE, Identity, Object
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.errors import OarlockError


def pod_of(api: Api, run: Identity, spec: Spec, task: str) -> str:
    """The name of the running pod that hosts a task. Raises OarlockError."""
    role, _, number = task.rpartition("-")
    member = spec.members_of(role, int(number) + 1) - 1
    found = api.all("Pod", f"{run.selector},{ROLE}={role}")
    seats = {_seat(pod): str(pod["metadata"]["name"]) for pod in found if claim_pod.is_up(pod)}
    # A gang that may shrink has no gaps: tasks are placed in the order of the seats that exist.
    names = dict(enumerate(seats[seat] for seat in sorted(seats))) if spec.is_elastic(role) else seats
    if member not in names:
        raise OarlockError(f"no pod of {task} is running; `oarlock status {spec.run}` says why")
    return names[member]


def _seat(pod: Object) -> int:
    container = next(one for one in pod["spec"]["containers"] if one["name"] == names.CONTAINER)
    variables = {one["name"]: one.get("value", "") for one in container.get("env") or []}
    offset = int(variables.get(SEAT_OFFSET) or 0)
    return offset + int(pod["metadata"]["labels"].get(INDEX, 0))
