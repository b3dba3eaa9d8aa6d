"""A file behind http:// or https://, read with urllib, which follows redirects only to those two.

A broken download resumes with Range and If-Range. If a server ignores both, it starts over.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from oarlock.agent.ingest.origin import BrokenError, FetchError, Opened
from oarlock.checkpoints.redact import redacted
from oarlock.run.quick_dataclass import dataclass

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 20  # bytes
_MAY_PASS = {408, 425, 429, 500, 502, 503, 504}  # status codes of failures that may pass
_LONGEST_WISH = 60.0  # seconds: the longest wait that a server may ask for
_UNKNOWN_HOST = 40.0  # seconds of retries: cluster DNS remembers an unknown name for 30
_CLOCK = 2.0  # seconds: a Last-Modified at least this old identifies the content


@dataclass(frozen=True)
class HttpOrigin:
    """One file behind a URL. `is_checked`: its checksum is known, so plain HTTP is allowed."""

    url: str
    is_checked: bool
    size: None = None
    modified_ns: None = None

    @property
    def shown(self) -> str:
        """The URL without user, password and query, which may have a presigned URL's signature."""
        parts = urlsplit(self.url)
        return redacted(urlunsplit((parts.scheme, _host(parts), parts.path, "", "")))

    def open(self, at: int, tag: str | None) -> Opened:
        """Read from byte `at` if the server confirms that the file is unchanged."""
        start = at if tag else 0
        response = self._answer(start, tag)
        if response is None:  # the server has no such range: the file has changed
            return self.open(0, None)
        headers = response.headers
        length = _number(headers.get("Content-Length"))
        if response.status != 206:
            if length is None and not _is_chunked(headers) and not self.is_checked:
                response.close()
                raise FetchError(
                    f"{self.shown}: the server does not say how long the file is, so that a broken download"
                    " looks like a whole one: add its sha256"
                )
            return Opened(0, length, _tag(headers), self._chunks(response))
        matched = re.match(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", ""))
        has_changed = _tag(headers) not in (None, tag)
        if matched is None or int(matched[1]) != start or has_changed:
            response.close()
            return self.open(0, None)
        size = _number(matched[2])
        if size is None and length is not None:
            size = start + length
        return Opened(start, size, tag, self._chunks(response))

    def _answer(self, start: int, tag: str | None) -> HTTPResponse | None:
        """The response; None if the server refuses the range."""
        try:
            request = self._request(start, tag)
            response: HTTPResponse = _opener(self.is_checked).open(request, timeout=_TIMEOUT)
            return response
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and start:
                    return None
                why = f"{self.shown}: the server answers {error.code} {error.reason}".rstrip()
                if error.code in _MAY_PASS:
                    wish = _number(error.headers.get("Retry-After")) or 0
                    raise BrokenError(why, wait=min(wish, _LONGEST_WISH)) from None
                raise FetchError(redacted(why)) from None
        except InvalidURL:
            raise FetchError(f"{self.shown} is not a URL that can be asked for") from None
        except (OSError, HTTPException) as error:
            raise self._problem(error) from None

    def _request(self, start: int, tag: str | None) -> urllib.request.Request:
        parts = urlsplit(self.url)
        request = urllib.request.Request(
            urlunsplit((parts.scheme, _host(parts), parts.path, parts.query, "")),
            headers={"User-Agent": "oarlock", "Accept-Encoding": "identity"},
        )
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            basic = base64.b64encode(login.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {basic}")  # only for this host
        if start and tag:
            request.add_header("Range", f"bytes={start}-")
            request.add_header("If-Range", tag)
        return request

    def _chunks(self, response: HTTPResponse) -> Iterator[bytes]:
        with response:
            while True:
                try:
                    chunk = response.read1(_CHUNK)
                except (OSError, HTTPException) as error:
                    raise self._problem(error) from None
                if not chunk:
                    return
                yield chunk

    def _problem(self, error: BaseException) -> FetchError | BrokenError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return FetchError(f"{self.shown}: its certificate is not trusted here: {reason.verify_message}")
        if isinstance(reason, socket.gaierror):
            return BrokenError(f"{self.shown}: {reason.strerror}", patience=_UNKNOWN_HOST)
        words = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        return BrokenError(redacted(f"{self.shown}: {words or type(reason).__name__}"))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects, restricted: urllib would follow to ftp://, and repeat a password to any host."""

    def __init__(self, is_checked: bool) -> None:
        self._is_checked = is_checked

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        target = urlsplit(newurl)
        is_downgrade = req.type == "https" and target.scheme == "http" and not self._is_checked
        if target.scheme not in ("http", "https") or is_downgrade:
            where = redacted(f"{target.scheme}://{_host(target)}")
            hint = ": add the file's sha256 to allow that" if is_downgrade else ""
            raise FetchError(f"{req.type}://{req.host} redirects to {where}, which is not followed{hint}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(is_checked: bool) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(is_checked),
    ):
        opener.add_handler(handler)
    return opener


def _tag(headers: Message) -> str | None:
    """What If-Range accepts: a strong ETag, or a Last-Modified in the past."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):
        return etag
    modified, now = headers.get("Last-Modified"), headers.get("Date")
    if not modified or not now:
        return None
    try:
        age = parsedate_to_datetime(now) - parsedate_to_datetime(modified)
    except (TypeError, ValueError):
        return None
    return modified if age.total_seconds() >= _CLOCK else None


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _is_chunked(headers: Message) -> bool:
    return headers.get("Transfer-Encoding", "").lower() == "chunked"


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,18}", text.strip()) else None
