"""One request and its answer, as a dialect sees them. Pure."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock.serving.served import Models, Served

JSON = b"application/json"
Headers = Sequence[tuple[bytes, bytes]]


class Call:
    """A request whose body is complete and within the limits, and whose token is checked."""

    __slots__ = ("body", "headers", "models", "number", "served")

    def __init__(
        self, models: Models, headers: Mapping[bytes, bytes], body: bytes, number: int | None
    ) -> None:
        self.models = models
        self.headers = headers  # names in lower case
        self.body = body
        self.number = number  # the version in the path
        self.served: Served | None = None  # the version that answered, for the access log

    def pick(self) -> Served:
        """Return the version in the path, or the default one. Raises KeyError."""
        self.served = self.models.pick(self.number)
        return self.served


class Answer:
    """The response: a body, or parts of one as they become available."""

    __slots__ = ("body", "content_type", "headers", "parts", "status")

    def __init__(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = JSON,
        headers: Headers = (),
        parts: AsyncIterator[bytes] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers
        self.parts = parts  # follow the body; each is sent when it is available


Handler = Callable[[Call], Awaitable[Answer]]


class Refused(Exception):
    """A request that only gets this sentence. A client's mistake is a 4xx."""

    def __init__(self, status: int, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


class Dialect:
    """A name for the metrics, and the shape of errors."""

    def __init__(self, name: str, error: Callable[[Refused], Any] | None = None) -> None:
        self.name = name
        self._error = error

    def refusal(self, refused: Refused) -> Answer:
        """The error in this dialect's format."""
        said = {"error": refused.text} if self._error is None else self._error(refused)
        body = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")
        return Answer(body, status=refused.status, headers=refused.headers)


def to_json(data: Any, status: int = 200) -> Answer:
    """Answer with plain data. Not for a model's numbers: see `json_output`."""
    return Answer(json.dumps(data).encode(), status=status)
