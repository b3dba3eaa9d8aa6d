"""The uploader: a process that copies a run's checkpoints and its model's versions to the snapshot store.

The leading agent starts it. It polls the checkpoints folder for what writers have committed
(`training/saving/writer.py`), retries failures for as long as it lives, and ends when its standard input
ends: training never waits for it.
"""

from __future__ import annotations

import os
import threading
import time

from oarlock.agent.snapshots.snapshot_messages import (
    FinishUploads,
    Left,
    Note,
    Reachable,
    Upload,
    Uploaded,
    UploadedPart,
)
from oarlock.agent.snapshots.snapshot_process import Troubles, next_order, request_timeout, say
from oarlock.agent.snapshots.upload_items import MODEL, Item, UploadItems
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import Bucket, ChangedError
from oarlock.checkpoints.store import verify
from oarlock.system import processes
from oarlock.system.backoff import Backoff

_POLL = 1.0  # seconds between two checks of the folder
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_LAST_WAIT = 1.0  # seconds; there is little time at the run's end


class OvertakenError(Exception):
    """This upload is no longer worth it: the run ends, and there is a newer checkpoint."""


class Uploader:
    """Works in the main thread. The thread that reads the agent's orders calls `finish`."""

    def __init__(self, order: Upload) -> None:
        self.url, self.run, self.owner = order.url, order.run, order.owner
        self.wake = threading.Event()
        self.is_ending = self.has_model = False
        self._settled: set[tuple[str, int]] = set()  # uploaded, or given up as damaged
        self._items = UploadItems(order.run, order.checkpoints, order.model)
        self._others: int | None = None  # the highest version that another machine uploaded
        self._was_version = False  # the last upload was a version: versions and checkpoints take turns
        self._troubles = Troubles()
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._was_reached = False
        self._parts = 0
        self._furthest: dict[tuple[str, int], int] = {}

    def finish(self, has_model: bool) -> None:
        """The run is over: upload only the newest checkpoint, and the model if the run succeeded."""
        self.is_ending, self.has_model = True, has_model
        self.wake.set()

    def work(self) -> None:
        """Upload what appears in the folder. After `finish`, return once everything is uploaded."""
        while True:
            try:
                left = self._left()
                if self.is_ending:
                    say(Left([item.name for item in left]))
                    if not left:
                        return
                if left:
                    self._upload(left[0])
                    self._on_success()
                elif not self._was_reached:  # reports a wrong URL now, not at the first checkpoint
                    Bucket(self.url, self.run, request_timeout(0)).names()
                    self._was_reached = True
                    self._on_success()
                else:
                    self.wake.wait(_POLL)
            except OvertakenError:
                pass
            except BaseException as error:  # a panic in Rust is no Exception
                self._on_trouble(error)

    def _left(self) -> list[Item]:
        """What is left to upload, the most urgent first."""
        checkpoints, versions = (
            self._items.checkpoints(),
            self._items.versions(self.is_ending and self.has_model),
        )
        if not self.is_ending:
            items = [*checkpoints, *versions] if self._was_version else [*versions, *checkpoints]
        elif self.has_model:
            rest = self._items.rest_of_model()
            items = [*versions, *([rest] if rest is not None else []), *checkpoints[:1]]
        else:
            items = [*checkpoints[:1], *versions[:1]]
        while self._items.refused:
            say(Note(self._items.refused.pop(0)))
        return [item for item in items if item.key not in self._settled]

    def _upload(self, item: Item) -> None:
        problem = verify(item.as_checkpoint())
        if problem is not None:
            self._give_up(item, problem)
            return
        bucket = Bucket(self.url, self.run, request_timeout(self._backoff.failures))
        name, self._parts = self._free_name(bucket, item), 0
        if name is not None:
            try:
                for file, entry in item.files.items():
                    bucket.send(name, file, item.folder / file, entry, lambda: self._on_part(item))
                bucket.complete(name, item.manifest)
            except ChangedError as error:
                self._give_up(item, str(error))
                return
            except FileNotFoundError:
                if item.folder.exists():
                    raise  # the store's way to say that there is no such bucket
                return  # retention has just deleted it
            say(Uploaded(name, item.size))
        self._settled.add(item.key)
        self._was_version = item.version is not None

    def _free_name(self, bucket: Bucket, item: Item) -> str | None:
        """The first name in the store that no other run has; None if the item is already there."""
        if item.version is not None and bucket.manifest(item.name) == item.manifest:
            return None
        for name in item.names(self._versions_of_others(bucket) if item.version is not None else 0):
            there = bucket.manifest(name)
            if there == item.manifest:
                return None
            if there is None and bucket.claim(name, self.owner):
                return name
        raise AssertionError("there is always another number")

    def _versions_of_others(self, bucket: Bucket) -> int:
        """The highest version that another machine has uploaded, or started to. Asks the store once."""
        if self._others is None:
            numbers = sorted(bucket.numbers(MODEL), reverse=True)
            foreign = (number for number in numbers if bucket.owner(f"{MODEL}/{number}") != self.owner)
            self._others = next(foreign, 0)
        return self._others

    def _on_part(self, item: Item) -> None:
        self._parts += 1
        if self._parts > self._furthest.get(item.key, 0):  # a full store accepts the same few again and again
            self._furthest[item.key] = self._parts
            say(UploadedPart(item.name))
        if self.is_ending and item.key not in [each.key for each in self._left()]:
            raise OvertakenError

    def _give_up(self, item: Item, problem: str) -> None:
        if item.folder.exists():  # otherwise retention has deleted it
            say(Note(f"{item.name} is not uploaded, because it is not whole: {problem}"))
        self._settled.add(item.key)

    def _on_success(self) -> None:
        self._backoff.succeeded()
        say(Reachable(True))
        if self._troubles.clear():
            say(Note("snapshots are uploaded again"))

    def _on_trouble(self, error: BaseException) -> None:
        if self._troubles.is_new(error):
            say(Note(f"cannot upload snapshots to {self.url}, retrying: {redact.reason(error)}"))
        say(Reachable(False))
        wait = self._backoff.failed()
        if self.is_ending:
            time.sleep(min(wait, _LAST_WAIT))
        else:
            self.wake.wait(wait)  # returns early when the run ends


def main() -> None:
    """Take orders from standard input and upload. Ends with the agent, which holds the other end."""
    processes.die_with_parent()
    os.nice(10)
    order = next_order()
    assert isinstance(order, Upload)
    uploader = Uploader(order)

    def listen() -> None:
        while (order := next_order()) is not None:
            if isinstance(order, FinishUploads):
                uploader.finish(order.has_model)
        os._exit(0)  # even in the middle of a request

    threading.Thread(target=listen, daemon=True).start()
    uploader.work()
    os._exit(0)  # a thread that waits for input makes an ordinary exit noisy
