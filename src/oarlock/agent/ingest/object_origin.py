"""An object, or all objects below a prefix, as a source: s3://, gs://, az:// and others that obstore reads.

This loads obstore, so only a process of its own may call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from oarlock.agent.ingest.origin import BrokenError, FetchError, Opened
from oarlock.checkpoints import redact
from oarlock.checkpoints.bucket import PART, opened
from oarlock.system.safe_names import stays_inside

SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_REQUEST = 60.0  # seconds for one part
_AT_ONCE = 4  # parts at the same time: one S3 stream is slower than most networks
_REFUSED = 10.0  # seconds of retries if the store refuses


@dataclass
class ObjectOrigin:
    """One object in an open store, as it was found. After a change it is looked up again."""

    shown: str
    store: Any
    key: str
    size: int
    modified_ns: int
    etag: str | None
    has_changed: bool = False

    def open(self, at: int, tag: str | None) -> Opened:
        """Read from byte `at` if the object is unchanged."""
        if self.has_changed:
            self._look_again()
        now = f"{self.etag} {self.modified_ns} {self.size}"
        start = at if tag == now and at <= self.size else 0
        return Opened(start, self.size, now, self._chunks(start))

    def _chunks(self, at: int) -> Iterator[bytes]:
        starts = iter(range(at, self.size, PART))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            coming: list[Future[bytes]] = []
            try:
                for start in starts:
                    coming.append(pool.submit(self._part, start, min(start + PART, self.size)))
                    if len(coming) == _AT_ONCE:
                        yield coming.pop(0).result()
                while coming:
                    yield coming.pop(0).result()
            finally:
                for future in coming:
                    future.cancel()

    def _look_again(self) -> None:
        import obstore

        try:
            now = _origin(self.shown, self.store, obstore.head(self.store, self.key))
        except FileNotFoundError:
            raise FetchError(f"{self.shown} was removed while it was fetched") from None
        except BaseException as error:  # a panic in Rust is no Exception
            raise _problem(self.shown, error) from None
        self.size, self.modified_ns, self.etag = now.size, now.modified_ns, now.etag
        self.has_changed = False

    def _part(self, start: int, end: int) -> bytes:
        import obstore
        from obstore.exceptions import PreconditionError

        options: obstore.GetOptions = {"range": (start, end)}
        if self.etag is not None:
            options["if_match"] = self.etag
        try:
            return bytes(obstore.get(self.store, self.key, options=options).bytes())
        except (FileNotFoundError, PreconditionError):
            self.has_changed = True
            raise BrokenError(f"{self.shown} changes while it is fetched") from None
        except BaseException as error:  # a panic in Rust is no Exception
            raise _problem(self.shown, error) from None


def find(url: str) -> ObjectOrigin | dict[str, ObjectOrigin]:
    """The object, or all objects below it, by their names there."""
    try:
        import obstore
    except ImportError:
        raise FetchError(
            f"{url.partition('://')[0]}:// needs obstore, which is not installed here:"
            " add `pip: [obstore]` to the job, or `pip install 'oarlock[storage]'`"
        ) from None
    parts = urlsplit(url)
    shown = redact.redacted(f"{parts.scheme}://{parts.netloc}{parts.path}")
    key = unquote(parts.path).strip("/")
    try:
        store = opened(f"{parts.scheme}://{parts.netloc}", _REQUEST)
        if key and not url.endswith("/"):
            try:
                return _origin(shown, store, obstore.head(store, key))
            except FileNotFoundError:
                pass
        below = [meta for page in obstore.list(store, prefix=key or None) for meta in page]
    except BaseException as error:
        raise _problem(shown, error) from None
    return _folder(shown, store, key, below)


def _folder(shown: str, store: Any, key: str, below: list[Any]) -> dict[str, ObjectOrigin]:
    found: dict[str, ObjectOrigin] = {}
    for meta in below:
        name = meta["path"][len(key) :].lstrip("/")
        if not name:  # an empty object that represents the folder
            continue
        if not stays_inside(name):
            raise FetchError(f"{shown} has an object that cannot be a file: {name!r}")
        found[name] = _origin(f"{shown.rstrip('/')}/{name}", store, meta)
    if not found:
        raise FetchError(f"{shown}: there is no such object, and none below it")
    return dict(sorted(found.items()))


def _origin(shown: str, store: Any, meta: Any) -> ObjectOrigin:
    modified_ns = int(meta["last_modified"].timestamp()) * 10**9
    return ObjectOrigin(shown, store, meta["path"], meta["size"], modified_ns, meta["e_tag"])


def _problem(shown: str, error: BaseException) -> BaseException:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return error
    why = f"{shown}: {redact.reason(error)}".rstrip(": ")  # the answer to a HEAD has no text
    if redact.is_refusal(error):
        return BrokenError(why, patience=_REFUSED)
    return BrokenError(why)
