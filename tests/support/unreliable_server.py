"""A real HTTP server for one file that breaks as a test wishes: cut connections, ignored ranges, changes."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Unreliable:
    """What it serves, how it behaves, and the headers of all requests that it got.

    `cuts`: bytes after which the next responses end, one entry for each. `statuses`: what the next requests
    are answered with instead of the file.
    """

    def __init__(self) -> None:
        self.content = b""
        self.etag: str | None = '"one"'
        self.modified: str | None = None
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.redirects: list[str] = []
        self.has_ranges = True
        self.minds_if_range = True
        self.framing = "length"  # or: chunked, none
        self.on_cut: list[Unreliable] = []  # what it turns into at the next cut
        self.requests: list[dict[str, str]] = []
        self.url = ""

    def ranges(self) -> list[str | None]:
        return [request.get("range") for request in self.requests]

    def become(self, other: Unreliable) -> None:
        self.content, self.etag, self.modified = other.content, other.etag, other.modified


@contextmanager
def unreliable(certificate: Path | None = None) -> Iterator[Unreliable]:
    """`certificate`: a file with it and its key, for https."""
    served = Unreliable()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.requests.append({name.lower(): value for name, value in self.headers.items()})
            if served.redirects:
                self._empty(302, {"Location": served.redirects.pop(0)})
            elif served.statuses:
                self._empty(served.statuses.pop(0), {"Retry-After": "0"})
            else:
                self._file()

        def _empty(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def _file(self) -> None:
            content, start = served.content, self._start()
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if served.etag:
                self.send_header("ETag", served.etag)
            if served.modified:
                self.send_header("Last-Modified", served.modified)
            rest = content[start:]
            cut = served.cuts.pop(0) if served.cuts else None
            if served.framing == "length":
                self.send_header("Content-Length", str(len(rest)))
            elif served.framing == "chunked":
                self.send_header("Transfer-Encoding", "chunked")
                whole = b"%x\r\n%s\r\n" % (len(rest), rest)
                rest = whole if cut is not None else whole + b"0\r\n\r\n"
            self.end_headers()
            self.wfile.write(rest[:cut])
            self.close_connection = cut is not None or served.framing == "none"
            if cut is not None and served.on_cut:
                served.become(served.on_cut.pop(0))

        def _start(self) -> int:
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            condition = self.headers.get("If-Range")
            is_same = condition in (served.etag, served.modified) or not served.minds_if_range
            return int(asked[1]) if asked and served.has_ranges and (condition is None or is_same) else 0

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        served.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}/data/images.bin"
        yield served
        server.shutdown()
        thread.join()
