"""The process that fetches the newest complete snapshot before the first generation forms, if that is newer
than what the checkpoints folder holds.

It takes its order and speaks as the uploading one does. It ends with 0 when it has fetched one or knows that
there is none; with 1 when it cannot know: to begin from nothing would then be silently wrong.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from oarlock.agent.snapshots.uploader import say
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import PART, Bucket, is_here
from oarlock.checkpoints.store import Manifest, Store, is_not_of, name_of, sync, unseal
from oarlock.system import processes

_NAME = re.compile("(step-([0-9]{1,18})-g([0-9]{1,18}))(?:_([0-9]{1,18}))?")
_REQUEST = 60.0  # seconds for a part, and twice as long after every failure
_LONGEST_REQUEST = 1920.0
_BRIEFLY = 5.0  # seconds of trying where there is something to go on from
_REFUSED = 10.0  # seconds of trying where the store answers that it will not
_LONGEST_WAIT = 10.0
_TOLD_EVERY = 10.0  # seconds

T = TypeVar("T")


class UnreachableError(Exception):
    """It has been tried for long enough."""


class Fetcher:
    def __init__(self, order: dict[str, Any]) -> None:
        self.url, self.run = order["url"], order["run"]
        self.store = Store(order["checkpoints"])
        self.patience = float(order["patience"])
        self._bucket: Bucket | None = None
        self._request = _REQUEST
        self._said: set[str] = set()

    def work(self) -> int:
        held, complaints = self.store.newest()
        for complaint in complaints:
            say({"note": complaint})
        at = (held.step, held.generation) if held else (-1, -1)
        if held:
            self.patience = min(self.patience, _BRIEFLY)
        try:
            self._fetch_newer_than(at)
            return 0
        except UnreachableError as error:
            why = f"the snapshots in {self.url} cannot be read: {error}"
        except OSError as error:
            why = f"a snapshot cannot be written to {self.store.folder}: {error.strerror or error}"
        if held:
            say({"note": f"{why}; going on from step {held.step}, which is here"})
            return 0
        say({"failed": f"{why}; to begin without them might be to begin again from nothing"})
        return 1

    def _fetch_newer_than(self, at: tuple[int, int]) -> None:
        found = [matched for name in self._ask(lambda it: it.names()) if (matched := _NAME.fullmatch(name))]
        ordered = sorted(found, key=lambda one: (int(one[2]), int(one[3]), int(one[4] or 1)), reverse=True)
        for one in ordered:
            if (int(one[2]), int(one[3])) <= at:
                return
            trouble = self._fetch(one[0], int(one[2]), int(one[3]))
            if trouble is None:
                say({"generation": int(one[3])})
                return
            say({"note": f"snapshot {one[0]} is not whole and is passed over: {trouble}"})

    def _fetch(self, name: str, step: int, generation: int) -> str | None:
        """None, or what is wrong with it there. What it is of, its name says: a manifest may say anything."""
        data = self._ask(lambda it: it.manifest(name))
        if data is None:
            return "its upload was not completed"
        manifest = unseal(data)
        trouble = manifest if isinstance(manifest, str) else is_not_of(manifest, step, generation)
        if isinstance(manifest, str) or trouble is not None:
            return trouble
        began, size = time.monotonic(), sum(told["size"] for told in manifest["files"].values())
        say({"note": f"fetching snapshot {name} ({size / 2**20:.1f} MiB) from {self.url}"})
        self.store.folder.mkdir(parents=True, exist_ok=True)
        self.store.clean()
        draft = self.store.draft(step, generation)
        draft.mkdir()
        try:
            for file, told in manifest["files"].items():
                trouble = self._receive(name, file, told, draft)
                if trouble is not None:
                    return trouble
            (draft / "manifest.json").write_bytes(data)
            sync(draft / "manifest.json")
            sync(draft)
            self.store.adopt(draft, name_of(step, generation))
            sync(self.store.folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        took = time.monotonic() - began
        say({"note": f"fetched snapshot {name} in {took:.1f} s: going on from step {step}"})
        return None

    def _receive(self, name: str, file: str, told: Manifest, draft: Path) -> str | None:
        size: int = told["size"]
        there = self._ask(lambda it: it.size(name, file))
        if there != size:
            return f"{file} is missing" if there is None else f"{file} has {there} bytes instead of {size}"
        target = draft / file
        target.parent.mkdir(parents=True, exist_ok=True)
        crc, at, said = 0, 0, time.monotonic()
        with target.open("wb") as sink:
            while at < size:
                data = self._ask(
                    partial(Bucket.receive, name=name, file=file, start=at, end=min(at + PART, size))
                )
                if not data:
                    return f"{file} ends after {at} bytes"
                sink.write(data)
                crc, at = zlib.crc32(data, crc), at + len(data)
                if time.monotonic() > said + _TOLD_EVERY:
                    said = time.monotonic()
                    say({"note": f"fetching {name}/{file}: {at / size:.0%}"})
            sink.flush()
            os.fsync(sink.fileno())
        return None if f"{crc:08x}" == told["crc32"] else f"{file} has changed since it was written"

    def _ask(self, question: Callable[[Bucket], T]) -> T:
        """The store's answer, asked for again while there is patience since the last one."""
        began, wait = time.monotonic(), 0.2
        while True:
            try:
                if self._bucket is None:
                    self._bucket = Bucket(self.url, self.run, self._request)
                return question(self._bucket)
            except BaseException as error:  # Rust's panics are no Exceptions
                patience = min(self.patience, _REFUSED) if redact.is_refusal(error) else self.patience
                if time.monotonic() + wait > began + patience:
                    raise UnreachableError(redact.told(error)) from None
                trouble = redact.kind(error)
                if trouble not in self._said:
                    self._said.add(trouble)
                    what = f"snapshots in {self.url} cannot be read, which is tried again"
                    say({"note": f"{what}: {redact.told(error)}"})
                self._bucket, self._request = None, min(2 * self._request, _LONGEST_REQUEST)
            time.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, _LONGEST_WAIT)


def main() -> int:
    processes.die_with_parent()
    order = json.loads(sys.stdin.readline())

    def listen() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    code = 0
    if not is_here():
        say({"missing": "obstore"})
    elif not order["is_new"]:
        code = Fetcher(order).work()
    os._exit(code)  # a thread that waits for input keeps an ordinary end from being quiet
