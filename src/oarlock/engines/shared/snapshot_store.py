"""A run's snapshots in object storage, for a user: list, verify, delete and copy them.

The agent has its own way to them, `agent/snapshots/children.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import CLAIM, LARGEST_MANIFEST, Bucket, is_here
from oarlock.checkpoints.download import DamagedError, compare, download
from oarlock.checkpoints.manifest import FILE_NAME as MANIFEST
from oarlock.checkpoints.manifest import Manifest, is_not_of, unseal
from oarlock.engines.shared.checkpoint_folder import Entry, entry
from oarlock.errors import OarlockError
from oarlock.wording import printable

_NAME = re.compile("(?:step-([0-9]{1,18})-g([0-9]{1,18})|model)(?:_([0-9]{1,18}))?|model/([1-9][0-9]{0,17})")
_PATIENCE = 20.0  # seconds for one request
_TRIES = 3  # for a part of a file that is read
_AT_ONCE = 8  # manifests
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
_HARMLESS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = re.compile("[a-z0-9-]+")  # it becomes part of a host's name: "x@example.com/" would choose the host
_BUCKETS = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_INCOMPLETE = "its upload was not completed"

T = TypeVar("T")


class Snapshots:
    """The snapshots of a run. Every method raises OarlockError if the store does not answer."""

    def __init__(self, spec: Spec, is_ours: bool) -> None:
        """`is_ours`: this machine sent the run. A run of another user must not decide which server sees the
        credentials of this one."""
        self._top = spec.snapshots
        self.url = f"{spec.snapshots}/{spec.run}"
        if not is_here():
            fix = "pip install 'oarlock[storage]'"
            raise OarlockError(f"the snapshots in {self._top} cannot be read without obstore: {fix}")
        if "://" not in self._top and not Path(self._top).is_dir():
            raise OarlockError(f"the snapshots in {self._top} are gone: there is no such folder")
        # The settings of its agents, such as the address of the server.
        settings = {key: text for key, text in spec.env.items() if key.startswith(_SETTINGS)}
        os.environ.update(settings if is_ours else _harmless(spec.run, self._top, settings))
        self._bucket = self._ask(lambda: _Bucket(spec.snapshots, spec.run, _PATIENCE))
        self._files = self._ask(self._bucket.contents)
        self._manifests: dict[str, Manifest | str] = {}

    def entries(self, verifies: bool) -> list[Entry]:
        """List checkpoints, newest first, then models; `verifies` reads every byte."""
        self._read_manifests()
        return [self._entry(name, verifies) for name in self._names()]

    def newest(self) -> str | None:
        """Return the name of the newest complete checkpoint."""
        self._read_manifests()
        return next((name for name in self._steps() if self._trouble(name) is None), None)

    def delete(self, names: Sequence[str]) -> int:
        """Delete snapshots and return the number of bytes freed.

        The manifest goes first: what is left after an interruption counts as incomplete.
        """
        freed = 0
        for name in names:
            files = self._files.pop(name)
            order = sorted(files, key=lambda file: (file == CLAIM, file != MANIFEST))
            self._ask(partial(self._bucket.delete, name, order[:1]))
            self._ask(partial(self._bucket.delete, name, order[1:]))
            freed += sum(files.values())
        return freed

    def choose(self, kind: str, step: int | None) -> str | None:
        """Return the newest complete snapshot of a kind, `model` or `checkpoints`, or of that step."""
        self._read_manifests()
        names = self._steps() if kind == "checkpoints" else [one for one in self._names() if _is_model(one)]
        matching = [name for name in names if step is None or _order(name)[0] == step]
        return next((name for name in matching if self._trouble(name) is None), None)

    def bring(self, name: str, folder: Path, show: Callable[[int], None]) -> tuple[int, int]:
        """Copy a snapshot into a new folder and compare checksums; return the number of files and bytes."""
        manifest = self._manifests[name]
        assert isinstance(manifest, dict)
        try:
            download(manifest["files"], folder, partial(self._receive, name), lambda _, count: show(count))
        except DamagedError as damage:
            raise OarlockError(f"{self.url}/{name}: {damage}") from None
        if not _is_model(name):
            (folder / MANIFEST).write_bytes(self._read(name))
        return len(manifest["files"]), sum(item["size"] for item in manifest["files"].values())

    def size(self, name: str) -> int:
        """Return the bytes of a snapshot."""
        return sum(self._files[name].values())

    def _names(self) -> list[str]:
        """Newest first, models last: versions before a model that has none."""
        return sorted(filter(_NAME.fullmatch, self._files), key=_order, reverse=True)

    def _steps(self) -> list[str]:
        return [name for name in self._names() if not _is_model(name)]

    def _entry(self, name: str, verifies: bool) -> Entry:
        manifest = self._manifests[name]
        why = self._trouble(name) or (self._compare(name) if verifies else None)
        known = manifest if isinstance(manifest, dict) else {}
        as_step = "step-0-g0" if _is_model(name) else name
        found = entry(as_step, self.url, known, why, verifies)
        if _is_model(name):
            found |= {"step": None, "generation": None}
        if why == _INCOMPLETE:
            found["state"] = "incomplete"
        return found | {"name": name, "size": self.size(name)}

    def _trouble(self, name: str) -> str | None:
        """What is wrong with a snapshot, without reading its files."""
        manifest, files = self._manifests[name], self._files[name]
        if isinstance(manifest, str):
            return manifest
        for file, item in manifest["files"].items():
            if file not in files:
                return f"{file} is missing"
            if files[file] != item["size"]:
                return f"{file} has {files[file]} bytes instead of {item['size']}"
        return None

    def _compare(self, name: str) -> str | None:
        manifest = self._manifests[name]
        assert isinstance(manifest, dict)
        try:
            compare(manifest["files"], partial(self._receive, name))
        except DamagedError as damage:
            return str(damage)
        return None

    def _receive(self, name: str, file: str, start: int, end: int) -> bytes:
        return self._ask(partial(self._bucket.receive, name, file, start, end), _TRIES)

    def _read_manifests(self) -> None:
        wanted = [name for name in self._names() if name not in self._manifests]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            self._manifests.update(zip(wanted, threads.map(self._manifest, wanted)))

    def _manifest(self, name: str) -> Manifest | str:
        if MANIFEST not in self._files[name]:
            return _INCOMPLETE
        manifest = unseal(self._read(name))
        if isinstance(manifest, str) or _is_model(name):
            return manifest
        step, generation, _ = _order(name)
        return is_not_of(manifest, step, generation) or manifest

    def _read(self, name: str) -> bytes:
        size = self._files[name][MANIFEST]
        if not 0 < size <= LARGEST_MANIFEST:
            return b""  # which is not a manifest
        return self._ask(partial(self._bucket.receive, name, MANIFEST, 0, size), _TRIES)

    def _ask(self, question: Callable[[], T], tries: int = 1) -> T:
        try:
            return question()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # panics in Rust are not Exceptions
            if tries > 1:
                return self._ask(question, tries - 1)
            why = redact.reason(error)
            raise OarlockError(f"the snapshots in {self._top} cannot be reached: {why}") from None


class _Bucket(Bucket):
    """A bucket with what agents never do: list everything, and delete."""

    def contents(self) -> dict[str, dict[str, int]]:
        """Return the size of each file, by snapshot. A version of the model is a snapshot by itself."""
        found: dict[str, dict[str, int]] = {}
        for some in self._api.list(self._store, self._run):
            for one in some:
                name, _, file = one["path"].removeprefix(f"{self._run}/").partition("/")
                if file:
                    found.setdefault(name, {})[file] = one["size"]
        model = found.get("model", {})
        numbers = {file[: -len(CLAIM) - 1] for file in model if file.endswith(f"/{CLAIM}")}
        for number in filter(str.isdecimal, numbers):
            inside = [file for file in model if file.startswith(f"{number}/")]
            found[f"model/{number}"] = {file[len(number) + 1 :]: model.pop(file) for file in inside}
        return {name: files for name, files in found.items() if files}

    def delete(self, name: str, files: Sequence[str]) -> None:
        if files:
            self._api.delete(self._store, [self._path(name, file) for file in files])


def _harmless(run: str, url: str, settings: dict[str, str]) -> dict[str, str]:
    """The settings of another user's run that are safe here. This user's settings win; others are refused."""
    scheme = url.partition("://")[0]
    if scheme not in _BUCKETS:
        raise OarlockError(
            f"{run} was not sent from here, and its snapshots are not in a bucket: {printable(url)}"
        )
    lacking = {key: text for key, text in settings.items() if key not in os.environ}
    asked = sorted(key for key in lacking if key not in _HARMLESS or not _REGION.fullmatch(lacking[key]))
    if asked:
        variables = [f"{key}={lacking[key]}" if _is_shown(key) else key for key in asked]
        raise OarlockError(
            f"{run} was not sent from here, and what its job says does not decide where your credentials go: "
            f"if you trust it, set {printable(', '.join(variables))} in your environment"
        )
    return lacking


def _is_shown(key: str) -> bool:
    return "ENDPOINT" in key or key.endswith("_ALLOW_HTTP")


def _is_model(name: str) -> bool:
    return name.startswith("model")


def _order(name: str) -> tuple[int, int, int]:
    """A key by which newer ones are greater. For a model: its version, and whether its name was taken."""
    step, generation, again, version = (int(part or -1) for part in _NAME.fullmatch(name).groups())  # type: ignore[union-attr]
    return step, max(generation, version), again
