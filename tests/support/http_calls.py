"""Plain HTTP requests to a server on this machine."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Send one request on a connection of its own; what is not bytes is sent as JSON."""
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, content, dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())
    finally:
        connection.close()


def post(port: int, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    return ask(port, "POST", path, body, headers)


def get(port: int, path: str, headers: Mapping[str, str] | None = None) -> Reply:
    return ask(port, "GET", path, None, headers)
