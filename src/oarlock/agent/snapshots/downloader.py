"""The downloader: a process that fetches the newest complete snapshot before the first generation forms, if
it is newer than the checkpoints in the folder; or the snapshots that a client wants to score.

It exits with 0 if it has fetched one or knows that there is none, and with 1 if it cannot know: then a start
from step 0 would be silently wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from oarlock.agent.snapshots.snapshot_messages import Download, Downloaded, Failed, MissingPackage, Note
from oarlock.agent.snapshots.snapshot_process import (
    Troubles,
    end_with_agent,
    next_order,
    request_timeout,
    say,
)
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import Bucket, is_here
from oarlock.checkpoints.download import DamagedError, download
from oarlock.checkpoints.manifest import FILE_NAME, Manifest, is_not_of, name_of, unseal
from oarlock.checkpoints.store import Store
from oarlock.system import processes
from oarlock.system.atomic_file import sync_folder, write_durably
from oarlock.system.backoff import Backoff

_NAME = re.compile("(step-([0-9]{1,18})-g([0-9]{1,18}))(?:_([0-9]{1,18}))?")
_BRIEFLY = 5.0  # seconds of retries if there is a checkpoint to resume from
_REFUSED = 10.0  # seconds of retries if the store refuses
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0
_WHY_NOT = "starting without them could mean starting over from step 0"
_PROGRESS = 10.0  # seconds between two notes about a long download

T = TypeVar("T")


class StoreUnreachableError(Exception):
    """The store gave no answer for as long as the run can wait."""


class Downloader:
    """Fetches one snapshot into the folder. Retries as long as the order allows."""

    def __init__(self, order: Download) -> None:
        self.url, self.run = order.url, order.run
        self.store = Store(order.checkpoints)
        self.patience = order.patience
        self._wanted = order.wanted
        self._bucket: Bucket | None = None
        self._failures = 0
        self._troubles = Troubles()

    def work(self) -> int:
        """Do the work. Returns the exit code of the process."""
        held, complaints = self.store.newest()
        for complaint in complaints:
            say(Note(complaint))
        at = (held.step, held.generation) if held else (-1, -1)
        if held:
            self.patience = min(self.patience, _BRIEFLY)
        try:
            self._fetch_newer_than(at)
            return 0
        except StoreUnreachableError as error:
            why = f"the snapshots in {self.url} cannot be read: {error}"
        except OSError as error:
            why = f"a snapshot cannot be written to {self.store.folder}: {error.strerror or error}"
        if held:
            say(Note(f"{why}; resuming from step {held.step}, which is here"))
            return 0
        say(Failed(why if self._wanted else f"{why}; {_WHY_NOT}"))
        return 1

    def _fetch_newer_than(self, at: tuple[int, int]) -> None:
        names = [matched for name in self._ask(Bucket.names) if (matched := _NAME.fullmatch(name))]
        newest_first = sorted(names, key=lambda n: (int(n[2]), int(n[3]), int(n[4] or 1)), reverse=True)
        fetched: set[int] = set()
        for name in newest_first:
            step, generation = int(name[2]), int(name[3])
            if (step, generation) <= at:
                return
            if step in fetched or (self._wanted.isdecimal() and step != int(self._wanted)):
                continue
            trouble = self._fetch(name[0], step, generation)
            if trouble is None:
                if not self._wanted:  # else the generation may be another run's
                    say(Downloaded(generation))
                if self._wanted != "all":
                    return
                fetched.add(step)
                continue
            say(Note(f"skipped snapshot {name[0]}, which is not whole: {trouble}"))

    def _fetch(self, name: str, step: int, generation: int) -> str | None:
        """Fetch it. Returns None, or what is wrong. Its name decides what it is: a manifest may lie."""
        data = self._ask(partial(Bucket.manifest, name=name))
        if data is None:
            return "its upload was not completed"
        manifest = unseal(data)
        trouble = manifest if isinstance(manifest, str) else is_not_of(manifest, step, generation)
        if isinstance(manifest, str) or trouble is not None:
            return trouble
        began, size = time.monotonic(), sum(entry["size"] for entry in manifest["files"].values())
        say(Note(f"fetching snapshot {name} ({size / 2**20:.1f} MiB) from {self.url}"))
        self.store.folder.mkdir(parents=True, exist_ok=True)
        self.store.clean()
        draft = self.store.draft(step, generation)
        draft.mkdir()
        try:
            trouble = self._sizes_differ(name, manifest)
            if trouble is not None:
                return trouble
            download(
                manifest["files"], draft, partial(self._receive, name), self._progress_of(name, manifest)
            )
            write_durably(draft / FILE_NAME, data, mode=0o644)
            self.store.adopt(draft, name_of(step, generation))
            sync_folder(self.store.folder)
        except DamagedError as error:
            return str(error)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        took = time.monotonic() - began
        then = "" if self._wanted else f": resuming from step {step}"
        say(Note(f"fetched snapshot {name} in {took:.1f} s{then}"))
        return None

    def _sizes_differ(self, name: str, manifest: Manifest) -> str | None:
        """Check the sizes before gigabytes are fetched for nothing."""
        for file, entry in manifest["files"].items():
            size = self._ask(partial(Bucket.size, name=name, file=file))
            if size is None:
                return f"{file} is missing"
            if size != entry["size"]:
                return f"{file} has {size} bytes instead of {entry['size']}"
        return None

    def _receive(self, name: str, file: str, start: int, end: int) -> bytes:
        return self._ask(partial(Bucket.receive, name=name, file=file, start=start, end=end))

    def _progress_of(self, name: str, manifest: Manifest) -> Callable[[str, int], None]:
        """A callback for every piece, which now and then reports the progress of its file."""
        so_far: dict[str, int] = {}
        said = time.monotonic()

        def on_piece(file: str, count: int) -> None:
            nonlocal said
            so_far[file] = so_far.get(file, 0) + count
            if time.monotonic() > said + _PROGRESS:
                said = time.monotonic()
                say(Note(f"fetching {name}/{file}: {so_far[file] / manifest['files'][file]['size']:.0%}"))

        return on_piece

    def _ask(self, question: Callable[[Bucket], T]) -> T:
        """Ask the store. Retries until the patience since its last answer is used up."""
        began, backoff = time.monotonic(), Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        while True:
            try:
                if self._bucket is None:
                    self._bucket = Bucket(self.url, self.run, request_timeout(self._failures))
                return question(self._bucket)
            except BaseException as error:  # a panic in Rust is no Exception
                wait = backoff.failed()
                patience = min(self.patience, _REFUSED) if redact.is_refusal(error) else self.patience
                if time.monotonic() + wait > began + patience:
                    raise StoreUnreachableError(redact.reason(error)) from None
                if self._troubles.is_new(error):
                    say(Note(f"cannot read snapshots in {self.url}, retrying: {redact.reason(error)}"))
                self._bucket = None
                self._failures += 1
            time.sleep(wait)


def main() -> None:
    """Take one order from standard input, work, exit. Ends with the agent, which holds the other end."""
    processes.die_with_parent()
    order = next_order()
    assert isinstance(order, Download)
    end_with_agent()
    code = 0
    if not is_here():
        say(MissingPackage())
    elif not order.is_new:
        code = Downloader(order).work()
    os._exit(code)
