"""The process that copies a run's checkpoints, and at its end the model, to where snapshots are kept.

The leading agent starts it, tells it where (a line of JSON on its standard input) and that the run ends
(another); it ends when that input does. It says what it does by lines of JSON on its standard output. What
fails it tries again for as long as it lives: nobody waits for it while the run goes on.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import Bucket, ChangedError, sealed
from oarlock.checkpoints.store import FORMAT, Checkpoint, Store, checksum, verify
from oarlock.system import processes

_LOOK = 1.0  # seconds between two looks at the folder
_LONGEST_WAIT = 30.0
_SHORT_WAIT = 1.0  # at the run's end there is little time
_PATIENCE = 60.0  # seconds for a part, and twice as long after every failure
_MOST_PATIENCE = 1920.0


class OvertakenError(Exception):
    """It is not worth going on with this one: the run ends, and there is a newer one."""


@dataclass(frozen=True)
class Item:
    """A folder with files, complete here."""

    name: str
    folder: Path
    files: dict[str, dict[str, Any]]
    manifest: bytes

    @property
    def key(self) -> tuple[str, int]:
        """A checkpoint may be made again under its name."""
        return self.name, zlib.crc32(self.manifest)


class Uploader:
    def __init__(self, order: dict[str, Any]) -> None:
        self.url, self.run, self.owner = order["url"], order["run"], order["owner"]
        self.checkpoints, self.model = Path(order["checkpoints"]), order["model"]
        self.wake = threading.Event()
        self.is_ending = self.has_model = False
        self._settled: set[tuple[str, int]] = set()  # there already, or not to be had
        self._model: Item | None = None
        self._troubles: set[str] = set()
        self._failures = 0
        self._has_looked = False
        self._parts = 0
        self._furthest: dict[tuple[str, int], int] = {}

    def end(self, has_model: bool) -> None:
        """The run is over: the newest checkpoint still, and the model of one that succeeded."""
        self.is_ending, self.has_model = True, has_model
        self.wake.set()

    def work(self) -> None:
        while True:
            try:
                left = self._left()
                if self.is_ending:
                    say({"left": [item.name for item in left]})
                    if not left:
                        return
                if left:
                    self._upload(left[0])
                    self._on_success()
                elif not self._has_looked:  # what is wrong is said now, not with the first checkpoint
                    Bucket(self.url, self.run, _PATIENCE).names()
                    self._has_looked = True
                    self._on_success()
                else:
                    self.wake.wait(_LOOK)
            except OvertakenError:
                pass
            except BaseException as error:  # Rust's panics are no Exceptions
                self._on_trouble(error)

    def _left(self) -> list[Item]:
        """What is to go, the most urgent first."""
        own = [one for one in Store(self.checkpoints).checkpoints() if one.manifest.get("run") == self.run]
        items = [item for item in map(_item_of, reversed(own)) if item is not None]
        if self.is_ending:
            items = ([model] if self.has_model and (model := self._final_model()) else []) + items[:1]
        return [item for item in items if item.key not in self._settled]

    def _final_model(self) -> Item | None:
        folder = Path(self.model)
        if self._model is None and "://" not in self.model:
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            if folder / "manifest.json" in paths:
                say({"note": "the model is not uploaded: it has a manifest.json of its own"})
                paths = []
            files = {}
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
            self._settle_without(item, problem)
            return
        bucket = Bucket(self.url, self.run, min(_PATIENCE * 2 ** min(self._failures, 10), _MOST_PATIENCE))
        name, self._parts = self._place(bucket, item), 0
        if name is not None:
            try:
                for file, told in item.files.items():
                    bucket.send(name, file, item.folder / file, told, lambda: self._on_part(item))
                bucket.complete(name, item.manifest)
            except ChangedError as problem:
                self._settle_without(item, str(problem))
                return
            except FileNotFoundError:
                if item.folder.exists():
                    raise  # the store's way to say that there is no such bucket
                return  # retention took it away under our hands
            say({"uploaded": name, "bytes": sum(told["size"] for told in item.files.values())})
        self._settled.add(item.key)

    def _place(self, bucket: Bucket, item: Item) -> str | None:
        """Its name there: the first that nobody else has. None if it is there already."""
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
            say({"part": item.name})
        if self.is_ending and item.key not in [one.key for one in self._left()]:
            raise OvertakenError

    def _settle_without(self, item: Item, problem: str) -> None:
        if item.folder.exists():  # else it was old, and is gone
            say({"note": f"{item.name} is not whole and is not uploaded: {problem}"})
        self._settled.add(item.key)

    def _on_success(self) -> None:
        self._failures = 0
        say({"works": True})
        if self._troubles:
            self._troubles.clear()
            say({"note": "snapshots are uploaded again"})

    def _on_trouble(self, error: BaseException) -> None:
        trouble = redact.kind(error)
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            what = f"snapshots cannot be uploaded to {self.url}, which is tried again"
            say({"note": f"{what}: {redact.told(error)}"})
        say({"works": False})
        wait = 0.5 * 2 ** min(self._failures, 10) * random.uniform(0.5, 1.5)
        self._failures += 1
        if self.is_ending:
            time.sleep(min(wait, _SHORT_WAIT))
        else:
            self.wake.wait(min(wait, _LONGEST_WAIT))  # until the run ends


def _item_of(checkpoint: Checkpoint) -> Item | None:
    try:
        manifest = (checkpoint.path / "manifest.json").read_bytes()
    except OSError:
        return None
    return Item(checkpoint.name, checkpoint.path, checkpoint.manifest["files"], manifest)


def _as_checkpoint(item: Item) -> Checkpoint:
    return Checkpoint(item.folder, 0, 0, {"files": item.files})


_speaking = threading.Lock()


def say(message: dict[str, Any]) -> None:
    with _speaking:
        print(json.dumps(message), flush=True)


def main() -> int:
    processes.die_with_parent()
    os.nice(10)
    uploader = Uploader(json.loads(sys.stdin.readline()))

    def listen() -> None:
        for line in sys.stdin:
            uploader.end(json.loads(line)["model"])
        os._exit(0)  # in the middle of a request, if need be

    threading.Thread(target=listen, daemon=True).start()
    uploader.work()
    os._exit(0)  # a thread that waits for input keeps an ordinary end from being quiet
