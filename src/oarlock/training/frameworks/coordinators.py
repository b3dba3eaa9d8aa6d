"""TensorFlow's ClusterCoordinator, where a loop only *schedules* its steps: workers run them later.

What a checkpoint or a report says about a step must describe a finished step. So a loop is held back while
many of its steps wait for a worker, and a save waits until all are done. The program needs no change:
`install` notes each coordinator that it creates.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from oarlock.training.frameworks.import_hooks import when_imported

_AHEAD = 4  # steps per worker that may wait: no worker is idle while the loop does something else
_CHECK = 0.1  # seconds between checks for a failed step

_coordinators: weakref.WeakSet[Any] = weakref.WeakSet()


def install() -> None:
    """Note the coordinators of this process once TensorFlow is imported."""
    when_imported("tensorflow.python.distribute.coordinator.cluster_coordinator", _note_new)


def _note_new(module: ModuleType) -> None:
    original = module.ClusterCoordinator.__init__

    @functools.wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _coordinators.add(self)

    module.ClusterCoordinator.__init__ = begin


def keep_up() -> None:
    """Wait while more than a few scheduled steps wait for a worker. Raises the error of a failed step."""
    for coordinator in list(_coordinators):
        cluster = getattr(coordinator, "_cluster", None)
        queue = getattr(getattr(cluster, "closure_queue", None), "_queue", None)
        took = getattr(getattr(cluster, "closure_queue", None), "_queue_free_slot_condition", None)
        if queue is None or took is None:
            continue  # a TensorFlow with other internals: reports run ahead, but saves are still right
        most = _AHEAD * len(cluster.workers)  # type: ignore[union-attr]
        while queue.qsize() > most and not coordinator.done():
            with took:
                took.wait(_CHECK)


def join() -> None:
    """Wait until all scheduled steps are done. Raises the error of a failed step."""
    for coordinator in list(_coordinators):
        coordinator.join()


def is_done(value: Any) -> bool:
    """Whether a scheduled value has been computed, or has failed."""
    return bool(value._status_available_event.is_set())


class RemoteMetrics:
    """Metrics whose values are still on workers: uses those of the newest finished step."""

    def __init__(self) -> None:
        self._scheduled: dict[str, deque[Any]] = {}

    def take(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics, with each remote value replaced by one that has arrived, or left out."""
        found = {}
        for name, value in metrics.items():
            if hasattr(value, "_status_available_event"):
                self._scheduled.setdefault(name, deque()).append(value)
            else:
                found[name] = value
        for name, values in self._scheduled.items():
            done = None
            while values and is_done(values[0]):
                done = values.popleft()
            if done is not None:
                found[name] = _Remote(done)
        return found


class _Remote:
    """A number that is fetched only when needed: few reports are sent."""

    shape = ()

    def __init__(self, value: Any) -> None:
        self._value = value

    def __float__(self) -> float:
        try:
            return float(self._value.fetch())
        except Exception:  # its worker is gone, and the value with it
            return float("nan")
