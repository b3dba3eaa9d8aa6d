"""One pod's log, each line exactly once: through its container's restarts, and those of kubelet and API
server.

The server stamps each line to the nanosecond. A reader that comes back asks from the last stamp's second
on and drops what it has had. A clean end of the stream says nothing: kubelets end it when they restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, Object

_PATIENCE = 1.0  # seconds for a node to hand out the next piece of a log that is there


@dataclass
class Position:
    """How far a pod's log has been read."""

    last: str = ""  # the latest line's stamp
    count: int = 0  # lines read with exactly that stamp
    restarts: int = 0  # the container it was read from
    is_done: bool = False  # the pod has ended, and all of it has been read

    def takes(self, stamp: str, seen: int) -> bool:
        """Whether a line is new; `seen` is how many with its stamp this reading has met before it."""
        return stamp > self.last or (stamp == self.last and seen >= self.count)

    def advance(self, stamp: str) -> None:
        self.count = self.count + 1 if stamp == self.last else 1
        self.last = stamp


def restarts_of(pod: Object) -> int:
    return max((one.get("restartCount", 0) for one in _containers(pod)), default=0)


def has_started(pod: Object) -> bool:
    """Whether there may be something to read."""
    return any(
        "running" in one.get("state", {}) or "terminated" in one.get("state", {}) or one.get("restartCount")
        for one in _containers(pod)
    )


def has_ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def read(api: Api, pod: Object, position: Position, *, follow: bool) -> Iterator[tuple[str, str]]:
    """(stamp, text) of every new line; advances the position. Raises ApiError."""
    name, restarts = pod["metadata"]["name"], restarts_of(pod)
    if restarts > position.restarts:
        try:
            yield from _read(api, name, position, _PATIENCE, previous="true")
        except ApiError as error:
            if error.status not in (400, 404):  # its log is gone with it
                raise
        position.restarts = restarts
    yield from _read(api, name, position, None if follow else _PATIENCE, follow="true" if follow else "")


def _read(
    api: Api, pod: str, position: Position, patience: float | None, **params: str
) -> Iterator[tuple[str, str]]:
    since = f"{position.last[:19]}Z" if position.last else ""
    met, seen = "", 0
    wanted = {"container": CONTAINER, "timestamps": "true", "sinceTime": since, **params}
    for line in api.log(pod, patience, **wanted):
        stamp, _, text = line.decode("utf-8", "replace").partition(" ")
        met, seen = (met, seen + 1) if stamp == met else (stamp, 0)
        if position.takes(stamp, seen):
            position.advance(stamp)
            yield stamp, text


def _containers(pod: Object) -> list[Object]:
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses") or []
    return [one for one in statuses if one["name"] == CONTAINER]
