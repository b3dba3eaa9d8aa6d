"""A run's snapshots in object storage or in a folder, and how every process opens such a store.

<url>/<run>/step-0000000120-g3/     a checkpoint, as it is in the checkpoints folder
    claim                           its owner, before it has a manifest: no other run writes there
    state.safetensors
    manifest.json                   written last, so that what has one is complete; never overwritten
<url>/<run>/model/3/                a version of the model, likewise
<url>/<run>/model/                  likewise, everything else in the model folder when the run ends
<url>/<run>/model_2/                a second model, if the name was taken
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from oarlock.checkpoints.manifest import FILE_NAME, FileEntry

CLAIM = "claim"
LARGEST_MANIFEST = 16 << 20  # bytes
PART = 8 << 20  # bytes in one request
_AT_ONCE = 2  # parts in flight; a large file takes at most three times this in memory
_MOST_PARTS = 9000  # S3 takes 10,000
_NUMBER = re.compile("[1-9][0-9]{0,17}")
_CONNECT = 5.0  # seconds
_PROVIDERS = {
    **dict.fromkeys(("s3", "s3a"), "AWS"),
    "gs": "GOOGLE",
    **dict.fromkeys(("az", "adl", "azure", "abfs", "abfss"), "AZURE"),
}


class ChangedError(Exception):
    """A local file is not what its manifest says."""


class Bucket:
    """The snapshots of one run, or with an empty name those at the top. `patience`: seconds for one request,
    which transfers one part at most."""

    def __init__(self, url: str, run: str, patience: float) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import LocalStore

        self._api = obstore
        self._taken = AlreadyExistsError
        self._run = run
        if "://" not in url:
            self._store: Any = LocalStore(prefix=url, mkdir=True)
            return
        self._store = opened(url, patience)

    def names(self) -> list[str]:
        """The names of the run's snapshots, complete or not."""
        found = self._api.list_with_delimiter(self._store, self._run)
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def numbers(self, name: str) -> list[int]:
        """The numbers directly below a name, complete or not."""
        found = self._api.list_with_delimiter(self._store, f"{self._run}/{name}")
        below = (prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])
        return [int(number) for number in below if _NUMBER.fullmatch(number)]

    def manifest(self, name: str) -> bytes | None:
        """The manifest; None if the snapshot is not complete. Found by listing: given a wrong bucket or key,
        a read also answers "not found", but a listing fails."""
        return self._read(name, FILE_NAME)

    def claim(self, name: str, owner: str) -> bool:
        """Whether `owner` may write the snapshot: no other owner has started to."""
        try:
            self._api.put(self._store, self._path(name, CLAIM), owner.encode(), mode="create")
        except self._taken:
            return self.owner(name) == owner
        return True

    def owner(self, name: str) -> str | None:
        """The owner that started to write the snapshot; None if there is none."""
        claim = self._read(name, CLAIM)
        return None if claim is None else claim.decode(errors="replace")

    def complete(self, name: str, manifest: bytes) -> None:
        """Write the manifest, which makes the snapshot complete."""
        try:
            self._api.put(self._store, self._path(name, FILE_NAME), manifest, mode="create")
        except self._taken:  # perhaps by us: after a retry we see only the second answer
            if self.manifest(name) != manifest:
                raise

    def send(self, name: str, file: str, path: Path, entry: FileEntry, on_part: Callable[[], None]) -> None:
        """Upload a file. Raises ChangedError before completing it if the file does not match its manifest."""
        target, size = self._path(name, file), entry["size"]
        part = max(PART, -(-size // _MOST_PARTS))
        parts = _checked(path, entry, part, on_part)
        if size <= part:
            self._api.put(self._store, target, b"".join(parts), use_multipart=False)
        else:
            self._api.put(self._store, target, parts, chunk_size=part, max_concurrency=_AT_ONCE)

    def size(self, name: str, file: str) -> int | None:
        """Bytes of a file in the store; None if it is not there."""
        return self._sizes(name, file.rpartition("/")[0]).get(self._path(name, file))

    def receive(self, name: str, file: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` of a file: never more, no matter what the store sends."""
        data = self._api.get_range(self._store, self._path(name, file), start=start, end=end)
        return bytes(data)[: end - start]

    def _read(self, name: str, file: str) -> bytes | None:
        size = self._sizes(name).get(self._path(name, file))
        if size is None:
            return None
        if size > LARGEST_MANIFEST:
            return b""  # not a manifest
        return bytes(self._api.get(self._store, self._path(name, file)).bytes())

    def _sizes(self, name: str, below: str = "") -> dict[str, int]:
        folder = self._path(name, below)
        found = self._api.list_with_delimiter(self._store, folder)
        return {one["path"]: one["size"] for one in found["objects"]}

    def _path(self, name: str, file: str) -> str:
        return "/".join(filter(None, (self._run, name, file)))


def opened(url: str, patience: float) -> Any:
    """obstore's store for a URL. `patience`: seconds for one request."""
    from obstore.store import from_url

    return from_url(
        url,
        client_options={
            "connect_timeout": timedelta(seconds=_CONNECT),
            "timeout": timedelta(seconds=patience),
            # Options passed here replace those from the environment, including this one.
            "allow_http": _allows_http(url),
        },
        retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=patience)},
    )


def is_here() -> bool:
    """Whether obstore can be imported."""
    try:
        import obstore  # noqa: F401
    except ImportError:
        return False
    return True


def _checked(path: Path, entry: FileEntry, part: int, on_part: Callable[[], None]) -> Iterator[bytes]:
    """A file in parts. A changed file is detected before its last part is sent, so it never completes."""
    size = crc = 0
    with path.open("rb") as file:
        while True:
            on_part()
            data = file.read(part)
            size, crc = size + len(data), zlib.crc32(data, crc)
            if size > entry["size"] or (len(data) < part and size < entry["size"]):
                raise ChangedError(f"{path.name} does not have {entry['size']} bytes")
            if size == entry["size"]:
                if f"{crc:08x}" != entry["crc32"]:
                    raise ChangedError(f"{path.name} has changed since it was written")
                yield data
                return
            yield data


def _allows_http(url: str) -> bool:
    """Whether plain HTTP is allowed. Each provider has its own variable for it."""
    provider = _PROVIDERS.get(url.partition("://")[0], "")
    return os.environ.get(f"{provider}_ALLOW_HTTP", "").lower() in ("true", "1")
