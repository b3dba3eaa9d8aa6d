"""A run's snapshots where they are kept: object storage by its URL, or a folder. Nobody else knows obstore.

<url>/<run>/step-0000000120-g3/     a checkpoint, as it is in the checkpoints folder
    claim                           whose it is, before it has a manifest: nobody else writes there
    state.safetensors
    manifest.json                   last, so that what has one is complete; never written over
<url>/<run>/model/                  the final model, likewise
<url>/<run>/model_2/                another one, under a name that was taken
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from oarlock.checkpoints.store import Manifest, seal

MANIFEST = "manifest.json"
CLAIM = "claim"
LARGEST_MANIFEST = 16 << 20  # bytes
PART = 8 << 20  # bytes in one request
_AT_ONCE = 2  # parts under way: what a large file costs in memory, three times over at most
_MOST_PARTS = 9000  # S3 takes 10,000
_CONNECT = 5.0  # seconds
_PROVIDERS = {
    **dict.fromkeys(("s3", "s3a"), "AWS"),
    "gs": "GOOGLE",
    **dict.fromkeys(("az", "adl", "azure", "abfs", "abfss"), "AZURE"),
}


class ChangedError(Exception):
    """A file here is not what its manifest says."""


class Bucket:
    def __init__(self, url: str, run: str, patience: float) -> None:
        """`patience`: seconds for one request, which sends or receives a part at most."""
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import LocalStore, from_url

        self._api = obstore
        self._taken = AlreadyExistsError
        self._run = run
        if "://" not in url:
            self._store: Any = LocalStore(prefix=url, mkdir=True)
            return
        self._store = from_url(
            url,
            client_options={
                "connect_timeout": timedelta(seconds=_CONNECT),
                "timeout": timedelta(seconds=patience),
                # Options given here replace those of the environment, this one among them.
                "allow_http": _allows_http(url),
            },
            retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=patience)},
        )

    def names(self) -> list[str]:
        """Of the run's snapshots, complete or not."""
        found = self._api.list_with_delimiter(self._store, self._run)
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def manifest(self, name: str) -> bytes | None:
        """None if it is not complete. By listing: a wrong bucket or key answers "not found" too, and makes
        a listing fail."""
        return self._read(name, MANIFEST)

    def claim(self, name: str, owner: str) -> bool:
        """Whether it is ours to write: nobody else has begun it."""
        try:
            self._api.put(self._store, self._path(name, CLAIM), owner.encode(), mode="create")
        except self._taken:
            return self._read(name, CLAIM) == owner.encode()
        return True

    def complete(self, name: str, manifest: bytes) -> None:
        try:
            self._api.put(self._store, self._path(name, MANIFEST), manifest, mode="create")
        except self._taken:  # by us, perhaps: of a request that was repeated only the second answer is seen
            if self.manifest(name) != manifest:
                raise

    def send(self, name: str, file: str, path: Path, told: Manifest, on_part: Callable[[], None]) -> None:
        """Raises ChangedError instead of completing a file that is not what its manifest says."""
        target, size = self._path(name, file), told["size"]
        part = max(PART, -(-size // _MOST_PARTS))
        parts = _checked(path, told, part, on_part)
        if size <= part:
            self._api.put(self._store, target, b"".join(parts), use_multipart=False)
        else:
            self._api.put(self._store, target, parts, chunk_size=part, max_concurrency=_AT_ONCE)

    def size(self, name: str, file: str) -> int | None:
        return self._sizes(name, file.rpartition("/")[0]).get(self._path(name, file))

    def receive(self, name: str, file: str, start: int, end: int) -> bytes:
        """Never more than was asked for, whatever the store sends."""
        data = self._api.get_range(self._store, self._path(name, file), start=start, end=end)
        return bytes(data)[: end - start]

    def _read(self, name: str, file: str) -> bytes | None:
        size = self._sizes(name).get(self._path(name, file))
        if size is None:
            return None
        if size > LARGEST_MANIFEST:
            return b""  # which is none
        return bytes(self._api.get(self._store, self._path(name, file)).bytes())

    def _sizes(self, name: str, below: str = "") -> dict[str, int]:
        folder = self._path(name, below) if below else f"{self._run}/{name}"
        found = self._api.list_with_delimiter(self._store, folder)
        return {one["path"]: one["size"] for one in found["objects"]}

    def _path(self, name: str, file: str) -> str:
        return f"{self._run}/{name}/{file}"


def is_here() -> bool:
    """Whether obstore can be imported."""
    try:
        import obstore  # noqa: F401
    except ImportError:
        return False
    return True


def sealed(manifest: Manifest) -> bytes:
    """As checkpoints have it: with a checksum of its own."""
    return json.dumps({"crc32": seal(manifest), "manifest": manifest}).encode()


def _checked(path: Path, told: Manifest, part: int, on_part: Callable[[], None]) -> Iterator[bytes]:
    """A file in parts. What is wrong with it is known before the last one goes: it never gets complete."""
    size = crc = 0
    with path.open("rb") as file:
        while True:
            on_part()
            data = file.read(part)
            size, crc = size + len(data), zlib.crc32(data, crc)
            if size > told["size"] or (len(data) < part and size < told["size"]):
                raise ChangedError(f"{path.name} has another size than {told['size']} bytes")
            if size == told["size"]:
                if f"{crc:08x}" != told["crc32"]:
                    raise ChangedError(f"{path.name} has changed since it was written")
                yield data
                return
            yield data


def _allows_http(url: str) -> bool:
    """What one provider is allowed, another is not."""
    provider = _PROVIDERS.get(url.partition("://")[0], "")
    return os.environ.get(f"{provider}_ALLOW_HTTP", "").lower() in ("true", "1")
