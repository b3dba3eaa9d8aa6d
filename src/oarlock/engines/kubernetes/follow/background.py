"""Keep the record of a run on a cluster: once, or in a thread for as long as a client follows the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from oarlock.engines.kubernetes.follow.ledger import Ledger
from oarlock.engines.kubernetes.follow.mirror import Mirror
from oarlock.engines.kubernetes.lifecycle import identity, repair
from oarlock.engines.kubernetes.lifecycle.connect import api_to_follow, explained
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records.run_folder import RunFolder

_RETRY = 0.5  # seconds between two attempts at a record that another client writes


def refresh(run: RunFolder, *, with_logs: bool = False) -> None:
    """Bring the record up to what the cluster shows now: its events and, `with_logs`, its tasks' output.

    A record that another client writes is up to date already.
    """
    if run.state().is_over:
        return
    with explained():
        if not repair.settle(run, identity.reach(run)):
            raise UnknownRun(f"{run.name} was never sent completely, and has been removed")
    try:
        held = run.hold(seconds=0)
    except OarlockError:
        return
    try:
        with explained():
            Mirror(run, api_to_follow(run)).catch_up(with_logs=with_logs)
    finally:
        os.close(held)


def reopen(run: RunFolder, seconds: float = 2.0) -> None:
    """Prepare the record of a run that has ended for the events of a resumed run."""
    held = run.hold(seconds)
    try:
        run.result_file.unlink(missing_ok=True)
        ledger = Ledger(run)
        ledger.emit("agent", pid=None)
        ledger.commit()
    finally:
        os.close(held)


def following(run: RunFolder) -> AbstractContextManager[Callable[[], bool]]:
    """Keep the record up to date inside a `with` block; see `kept`."""
    return kept(run, lambda stop: Mirror(run, api_to_follow(run)).follow(stop))


@contextmanager
def kept(run: RunFolder, follow: Callable[[threading.Event], None]) -> Iterator[Callable[[], bool]]:
    """Have a thread write the record, by `follow`, inside a `with` block.

    The value is a function that returns whether more may come, and raises the error that ended the thread.
    """
    follower = _Follower(run, follow)
    follower.start()
    try:
        yield follower.is_live
    finally:
        follower.stop.set()
        follower.join()


class _Follower(threading.Thread):
    def __init__(self, run: RunFolder, follow: Callable[[threading.Event], None]) -> None:
        super().__init__(name=f"following {run.name}", daemon=True)
        self.run_folder = run
        self.follow = follow
        self.stop = threading.Event()
        self.error: OarlockError | None = None

    def is_live(self) -> bool:
        is_alive = self.is_alive()
        if self.error is not None:
            raise self.error
        return is_alive

    def run(self) -> None:
        """One client at a time writes the record; the others read it, and take over when that one leaves."""
        while not self.stop.is_set() and not self.run_folder.state().is_over:
            try:
                held = self.run_folder.hold(seconds=0)
            except OarlockError:
                self.stop.wait(_RETRY)
                continue
            try:
                with explained():
                    self.follow(self.stop)
            except OarlockError as error:
                self.error = error
                return
            except FileNotFoundError:
                self.error = OarlockError(f"{self.run_folder.name} was deleted")
                return
            finally:
                os.close(held)
