"""The replicas: how many there are, which versions they serve, what happens when one dies.

New versions replace old ones one replica at a time: the first shows whether they load at all, and an old
replica retires only after a new one answers. Every problem is reported; nothing here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from oarlock.serving.draining_signals import RETIRE, STOP
from oarlock.serving.fleet.replica_process import ReplicaProcess
from oarlock.serving.fleet.version_choice import VersionSet
from oarlock.system.backoff import Backoff

_STEADY = 10.0  # seconds after which a replica that dies no longer counts as dying at once
_KILL_AFTER = 5.0  # seconds beyond the grace period
_MOST_LOADS = 2  # times that a replica may die silently while it loads


class NothingServes(Exception):
    """No version could be loaded; says why."""


class Fleet:
    """`fork` starts the process of a replica; `say` writes a line for the user."""

    def __init__(
        self,
        fork: Callable[[ReplicaProcess], None],
        say: Callable[[str], None],
        grace: float,
        blocks: int,
    ) -> None:
        self._fork = fork
        self._say = say
        self._grace = grace
        self._free_blocks = list(range(blocks))
        self._numbers = 0
        self._backoff = Backoff(0.1, 10.0)
        self._not_before = 0.0
        self._crashes: dict[object, int] = {}
        self._is_ending = False
        self.refused: dict[object, str] = {}  # key of a version set -> why it does not load
        self.proven: set[object] = set()  # keys of version sets that have answered
        self.replicas: list[ReplicaProcess] = []
        self.restarts = 0

    @property
    def ready(self) -> list[ReplicaProcess]:
        """The replicas that answer."""
        return [one for one in self.replicas if one.is_ready]

    @property
    def serving(self) -> list[dict[str, Any]]:
        """The served versions, as the newest answering replica describes them."""
        return (self.ready[-1].ready or []) if self.ready else []

    def keep(self, wanted: VersionSet, count: int) -> None:
        """Take the next steps toward `count` replicas that serve these versions."""
        if self._is_ending:
            return
        live = [one for one in self.replicas if one.drains_until is None]
        fresh = [one for one in live if one.key == wanted.key]
        stale = [one for one in live if one.key != wanted.key]
        ready = [one for one in fresh if one.is_ready]
        for one in _surplus(fresh, stale, ready, count):
            one.drain(RETIRE, self._grace + _KILL_AFTER)
            live.remove(one)
        loading = sum(one.is_loading for one in fresh)
        # While others serve, one at a time: it takes the memory of one more model, and no storm of loading.
        at_once = 1 if stale else count
        room = min(at_once - loading, count - len(fresh))
        if room > 0 and time.monotonic() >= self._not_before:
            for _ in range(room):
                self._start(wanted)

    def turn(self) -> None:
        """Handle replicas that have ended, or should have."""
        now = time.monotonic()
        for one in list(self.replicas):
            if one.ready is not None and one.key not in self.proven:
                self.proven.add(one.key)
                self._crashes.pop(one.key, None)
            if one.reap():
                self.replicas.remove(one)
                self._free_blocks.append(one.block)
                self._on_end(one)
            elif one.drains_until is not None and now > one.drains_until:
                one.kill()

    def end(self, now: bool = False) -> None:
        """Let all replicas finish their requests and exit; `now`: kill them."""
        self._is_ending = True
        for one in self.replicas:
            if now:
                one.kill()
            else:
                one.drain(STOP, self._grace + _KILL_AFTER)

    def deadline(self) -> float | None:
        """When `turn` or `keep` has work even if nothing happens, in time.monotonic()."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[float]:
        for one in self.replicas:
            if one.drains_until is not None:
                yield one.drains_until
        if self._not_before > time.monotonic():
            yield self._not_before

    def _start(self, wanted: VersionSet) -> None:
        self._numbers += 1
        one = ReplicaProcess(self._numbers, wanted.key, wanted.versions, self._free_blocks.pop(0))
        self._fork(one)
        self.replicas.append(one)

    def _on_end(self, one: ReplicaProcess) -> None:
        if one.drains_until is not None or self._is_ending:
            return
        if one.ready is None and one.key not in self.proven:
            self._on_failed_load(one)
            return
        self.restarts += 1
        wait = 0.0
        if time.monotonic() - one.began < _STEADY:
            wait = self._backoff.failed()
        else:
            self._backoff.succeeded()
        self._not_before = time.monotonic() + wait
        when = f" in {wait:.1f} s" if wait >= 1 else ""
        self._say(f"replica {one.number} is gone: {one.why()}; another one starts{when}")

    def _on_failed_load(self, one: ReplicaProcess) -> None:
        if one.failed is None:
            self._crashes[one.key] = self._crashes.get(one.key, 0) + 1
            if self._crashes[one.key] < _MOST_LOADS:
                return
        self.refused.setdefault(one.key, one.why())


def _surplus(
    fresh: list[ReplicaProcess], stale: list[ReplicaProcess], ready: list[ReplicaProcess], count: int
) -> list[ReplicaProcess]:
    """Replicas that are not needed: old ones as new ones answer, then new ones beyond the count."""
    old = [one for one in stale if one.is_loading]
    answering = [one for one in stale if one.is_ready]
    old += answering[: max(0, len(ready) + len(answering) - count)] if ready else []
    if len(ready) >= count:
        old = list(stale)
    over = len(fresh) - count
    loading = [one for one in reversed(fresh) if one.is_loading]
    last = [*loading, *(one for one in reversed(fresh) if one.is_ready)]
    return [*old, *last[: max(0, over)]]
