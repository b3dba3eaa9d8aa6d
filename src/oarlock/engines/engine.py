"""What a run is to a client, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oarlock.records.runs import RunFolder
from oarlock.records.watch import Found, Watch


@contextmanager
def live(run: RunFolder) -> Iterator[Callable[[], bool]]:
    """Keep the run's record up to date; the function says whether more is to come."""
    if not run.is_remote:
        yield run.is_held
        return
    from oarlock.engines.kubernetes import kubernetes_engine  # only where there is a cluster

    with kubernetes_engine.watching(run) as is_watched:
        yield is_watched


def follow(watch: Watch) -> Iterator[Found]:
    """What is new, again and again, until the run has ended."""
    with live(watch.run) as is_live:
        yield from watch.follow(is_live)
