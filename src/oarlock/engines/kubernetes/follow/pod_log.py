"""One pod's log, each line exactly once, even if its container, its kubelet or the API server restarts.

The server stamps each line to the nanosecond. A reader that reconnects reads from the last stamp's second on
and drops the lines it has seen. A clean end of the stream means nothing: kubelets end it when they restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import CONTAINER, Object
from oarlock.engines.kubernetes.follow import pod_status

PATIENCE = 1.0  # seconds for a node to send the next piece of a log, once another has kept us waiting


@dataclass
class Position:
    """How far a pod's log is read."""

    last: str = ""  # the stamp of the newest line
    count: int = 0  # lines read with exactly that stamp
    restarts: int = 0  # the container it was read from

    def takes(self, stamp: str, seen: int) -> bool:
        """Whether a line is new; `seen` counts the lines with its stamp before it in this reading."""
        return stamp > self.last or (stamp == self.last and seen >= self.count)

    def advance(self, stamp: str) -> None:
        """Count a line as read."""
        self.count = self.count + 1 if stamp == self.last else 1
        self.last = stamp


def read(
    api: Api, pod: Object, position: Position, *, follow: bool, patience: float
) -> Iterator[tuple[str, str]]:
    """Read (stamp, text) of every new line; advances the position. Raises ApiError."""
    name, restarts = pod["metadata"]["name"], pod_status.restarts_of(pod)
    if restarts > position.restarts:
        try:
            yield from _read(api, name, position, patience, previous="true")
        except ApiError as error:
            if error.status not in (400, 404):  # its log is gone with it
                raise
        position.restarts = restarts
    yield from _read(api, name, position, None if follow else patience, follow="true" if follow else "")


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
