"""Wheels for pods that reach no index: served from this machine, at the address the pods know it by."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path, server: str) -> Iterator[list[str]]:
    """Flags for `oarlock run` that have pip take its packages from the folder. `server` is the API's URL."""
    host = urlsplit(server).hostname or ""
    with ThreadingHTTPServer((host, 0), functools.partial(_Quiet, directory=str(folder))) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        variables = {
            "PIP_FIND_LINKS": f"http://{host}:{listening.server_port}/",
            "PIP_NO_INDEX": "1",
            "PIP_TRUSTED_HOST": host,
        }
        try:
            yield [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        finally:
            listening.shutdown()


def download(package: str, folder: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", package]
    subprocess.run([*words, "--dest", str(folder)], check=True, capture_output=True, timeout=300)
