"""Servers of other kinds of object storage: Azurite for `az://`, and for `gs://` a way to the S3 server.

Azurite is Microsoft's own emulator. There is no server of Google's XML API in PyPI, npm or Debian. That API
is S3's but for its credentials (a bearer token) and its preconditions (`x-goog-if-generation-match`):
`Google` translates both and passes everything else on as it is, so the S3 server answers Google's client.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import http.client
import os
import secrets
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest

from oarlock.checkpoints.bucket import opened
from tests.support.debian_packages import program_of
from tests.support.ports import free_ports
from tests.support.stores import BUCKET, Store
from tests.support.waiting import eventually

_AZURITE = "azurite@3.35.0"
_PASSED_ON = ("content-type", "range", "if-match", "if-none-match", "content-md5")
_REQUEST = 300  # seconds


def tags(url: str, run: str) -> dict[str, str]:
    """What is stored of a run, by its path below the run, with what tells that it has changed."""
    found = [one for page in opened(f"{url}/{run}", _REQUEST).list() for one in page]
    return {str(one["path"]): f"{one['size']} {one.get('e_tag')}" for one in found}


def complete(url: str, run: str) -> list[str]:
    """The names of its complete snapshots."""
    return sorted(
        path[: -len("/manifest.json")] for path in tags(url, run) if path.endswith("/manifest.json")
    )


class ObjectServer(Protocol):
    """A server with an empty bucket called `runs`."""

    url: str  # of the bucket

    def start(self) -> None:
        """Return once it answers."""

    def kill(self) -> None:
        """Without a word."""

    def env(self) -> dict[str, str]:
        """What a client needs."""

    def secrets(self) -> list[str]:
        """What nobody may print."""


class S3(Store):
    """The S3 server itself."""

    url = f"s3://{BUCKET}"

    def secrets(self) -> list[str]:
        return [self.key, self.secret]


class Azure:
    """Azurite, with an account of its own."""

    url = f"az://{BUCKET}"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = _azurite()
        self._port = free_ports(1, "127.0.0.1")[0]
        self._account = "oarlocktest"
        self._key = base64.b64encode(secrets.token_bytes(64)).decode()
        self._process: subprocess.Popen[bytes] | None = None

    def env(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self._account,
            "AZURE_STORAGE_ACCOUNT_KEY": self._key,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self._port}/{self._account}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def secrets(self) -> list[str]:
        return [self._key]

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        words = [str(self._program), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        words += ["--location", str(self._folder), "--blobPort", str(self._port)]
        accounts = {"AZURITE_ACCOUNTS": f"{self._account}:{self._key}"}
        self._process = subprocess.Popen(
            words, env={**os.environ, **accounts}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        eventually(lambda: _listens(self._port), f"Azurite on port {self._port}", every=0.05)
        answer = self._create_bucket()
        assert answer in (201, 409), f"Azurite answers {answer}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _create_bucket(self) -> int:
        """Signed with the account's key (Shared Key)."""
        path, now = f"/{self._account}/{BUCKET}", format_datetime(datetime.now(timezone.utc), usegmt=True)
        headers = {"x-ms-date": now, "x-ms-version": "2021-12-02"}
        told = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        to_sign = "PUT" + "\n" * 12 + told + f"/{self._account}{path}\nrestype:container"
        mac = hmac.new(base64.b64decode(self._key), to_sign.encode(), hashlib.sha256).digest()
        signed = f"SharedKey {self._account}:{base64.b64encode(mac).decode()}"
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_REQUEST)
        line.request("PUT", f"{path}?restype=container", headers={**headers, "Authorization": signed})
        status = line.getresponse().status
        line.close()
        return status


class Google:
    """The S3 server, for a client of Google's XML API."""

    url = f"gs://{BUCKET}"

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder)
        self._token = secrets.token_hex(20)
        self._port = free_ports(1, "127.0.0.1")[0]
        self._server: ThreadingHTTPServer | None = None

    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{self._port}",
            "GOOGLE_BEARER_TOKEN": self._token,
            "GOOGLE_ALLOW_HTTP": "true",
        }

    def secrets(self) -> list[str]:
        return [self._token]

    def start(self) -> None:
        self._store.start()
        token, store = self._token, self._store

        class Translator(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def translate(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("authorization") != f"Bearer {token}":
                    self.answer(401, {}, b"<Error><Code>AuthenticationRequired</Code></Error>")
                    return
                headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
                if self.headers.get("x-goog-if-generation-match") == "0":
                    headers["if-none-match"] = "*"
                self.answer(*_asked(store, self.command, self.path, headers, body))

            def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() in ("etag", "content-type", "content-range", "last-modified"):
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                length = headers.get("Content-Length", "0") if is_head else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = translate  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Be quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Translator)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._store.kill()


def _asked(
    store: Store, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """What the S3 server answers to the request, signed with its key (Signature Version 4)."""
    parts = urlsplit(target)
    path = quote(unquote(parts.path), safe="/-_.~")
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    host = f"{store.host}:{store.port}"
    signed = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
    listed = ";".join(signed)
    lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
    request = f"{method}\n{path}\n{query}\n{lines}\n{listed}\nUNSIGNED-PAYLOAD"
    to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{store.secret}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    mac = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    proof = f"AWS4-HMAC-SHA256 Credential={store.key}/{scope}, SignedHeaders={listed}, Signature={mac}"
    line = http.client.HTTPConnection(host, timeout=_REQUEST)
    try:
        address = f"{path}?{query}" if query else path
        line.request(method, address, body, {**headers, **signed, "Authorization": proof})
        answer = line.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        line.close()


def _azurite() -> Path:
    """Installed once on this machine, whoever tests first. Skips the test where there is no npm; CI installs
    it, if it may."""
    folder = Path(tempfile.gettempdir()) / f"oarlock-{_AZURITE}"
    found = folder / "node_modules" / ".bin" / "azurite-blob"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return found
        npm = program_of("npm")
        if npm is None:
            pytest.skip("there is no npm here, which installs Azurite; install the package `npm`")
        words = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), _AZURITE]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800)
        if done.returncode:
            pytest.skip(f"npm cannot install {_AZURITE} here: {done.stderr.strip()[-300:]}")
        (folder / "complete").touch()
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
