"""The uploader: a process that copies a run's checkpoints, and at the end its model, to the snapshots.

The leading agent starts it. It polls the checkpoints folder for what writers have committed
(`training/saving/writer.py`), retries what fails for as long as it lives, and ends when its standard input
does: training never waits for it.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from oarlock.agent.snapshots.snapshot_messages import Finish, Left, Note, Part, Reachable, Upload, Uploaded
from oarlock.agent.snapshots.snapshot_process import Troubles, next_order, request_timeout, say
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import Bucket, ChangedError
from oarlock.checkpoints.manifest import FILE_NAME, FORMAT, FileEntry, sealed
from oarlock.checkpoints.store import Checkpoint, Store, checksum, verify
from oarlock.system import processes
from oarlock.system.backoff import Backoff

_POLL = 1.0  # seconds between two looks at the folder
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_LAST_WAIT = 1.0  # at the run's end there is little time


class OvertakenError(Exception):
    """This upload is not worth continuing: the run ends, and there is a newer checkpoint."""


@dataclass(frozen=True)
class Item:
    """A complete folder to upload: a checkpoint, or the model."""

    name: str
    folder: Path
    files: dict[str, FileEntry]
    manifest: bytes

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the content: a later generation may save the same step again under the same name."""
        return self.name, zlib.crc32(self.manifest)


class Uploader:
    """Works in the main thread; `finish` is called by the thread that listens to the agent."""

    def __init__(self, order: Upload) -> None:
        self.url, self.run, self.owner = order.url, order.run, order.owner
        self.checkpoints, self.model = Path(order.checkpoints), order.model
        self.wake = threading.Event()
        self.is_ending = self.has_model = False
        self._settled: set[tuple[str, int]] = set()  # uploaded, or damaged and given up
        self._model: Item | None = None
        self._troubles = Troubles()
        self._backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        self._was_reached = False
        self._parts = 0
        self._furthest: dict[tuple[str, int], int] = {}

    def finish(self, has_model: bool) -> None:
        """The run is over: only the newest checkpoint remains to upload, and the model if it succeeded."""
        self.is_ending, self.has_model = True, has_model
        self.wake.set()

    def work(self) -> None:
        """Upload what appears in the folder; return when all is uploaded after `finish`."""
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
                elif not self._was_reached:  # a wrong URL is reported now, not with the first checkpoint
                    Bucket(self.url, self.run, request_timeout(0)).names()
                    self._was_reached = True
                    self._on_success()
                else:
                    self.wake.wait(_POLL)
            except OvertakenError:
                pass
            except BaseException as error:  # Rust's panics are no Exceptions
                self._on_trouble(error)

    def _left(self) -> list[Item]:
        """What remains to upload, the most urgent first."""
        own = [
            checkpoint
            for checkpoint in Store(self.checkpoints).checkpoints()
            if checkpoint.manifest.get("run") == self.run
        ]
        items = [item for item in map(_item_of, reversed(own)) if item is not None]
        if self.is_ending:
            items = ([model] if self.has_model and (model := self._final_model()) else []) + items[:1]
        return [item for item in items if item.key not in self._settled]

    def _final_model(self) -> Item | None:
        folder = Path(self.model)
        if self._model is None and "://" not in self.model:
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            if folder / FILE_NAME in paths:
                say(Note(f"the model is not uploaded: it has a {FILE_NAME} of its own"))
                paths = []
            files: dict[str, FileEntry] = {}
            for path in paths:
                size, crc = checksum(path)
                files[path.relative_to(folder).as_posix()] = {"size": size, "crc32": crc}
            # Without a time: the same model is the same snapshot.
            manifest = sealed({"format": FORMAT, "run": self.run, "files": files})
            self._model = Item("model", folder, files, manifest)
        return self._model if self._model and self._model.files else None

    def _upload(self, item: Item) -> None:
        problem = verify(_as_checkpoint(item))
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
                    raise  # how the store says that there is no such bucket
                return  # retention has just deleted it
            say(Uploaded(name, sum(entry["size"] for entry in item.files.values())))
        self._settled.add(item.key)

    def _free_name(self, bucket: Bucket, item: Item) -> str | None:
        """The first name in the store that no other run has; None if the item is there already."""
        for number in count(1):
            name = item.name if number == 1 else f"{item.name}_{number}"
            there = bucket.manifest(name)
            if there == item.manifest:
                return None
            if there is None and bucket.claim(name, self.owner):
                return name
        raise AssertionError("there is always another number")

    def _on_part(self, item: Item) -> None:
        self._parts += 1
        if self._parts > self._furthest.get(item.key, 0):  # a full store takes the same few again and again
            self._furthest[item.key] = self._parts
            say(Part(item.name))
        if self.is_ending and item.key not in [each.key for each in self._left()]:
            raise OvertakenError

    def _give_up(self, item: Item, problem: str) -> None:
        if item.folder.exists():  # else retention has deleted it
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
            self.wake.wait(wait)  # until the run ends


def _item_of(checkpoint: Checkpoint) -> Item | None:
    try:
        manifest = (checkpoint.path / FILE_NAME).read_bytes()
    except OSError:
        return None
    return Item(checkpoint.name, checkpoint.path, checkpoint.manifest["files"], manifest)


def _as_checkpoint(item: Item) -> Checkpoint:
    return Checkpoint(item.folder, 0, 0, {"files": item.files})


def main() -> None:
    """Take orders from standard input and upload. Ends with the agent that holds the other end."""
    processes.die_with_parent()
    os.nice(10)
    order = next_order()
    assert isinstance(order, Upload)
    uploader = Uploader(order)

    def listen() -> None:
        while (order := next_order()) is not None:
            if isinstance(order, Finish):
                uploader.finish(order.has_model)
        os._exit(0)  # in the middle of a request, if need be

    threading.Thread(target=listen, daemon=True).start()
    uploader.work()
    os._exit(0)  # a thread that waits for input keeps an ordinary exit from being quiet
