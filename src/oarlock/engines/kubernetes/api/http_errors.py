"""Failed requests as one kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2 as httpx

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.login import LoginError


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn errors of the connection and of the login into ApiError."""
    try:
        yield
    except httpx.HTTPError as problem:
        why = str(problem) or type(problem).__name__
        raise ApiError(0, "Unreachable", f"the API server does not answer ({why})", doing) from None
    except LoginError as problem:
        raise ApiError(401, "Unauthorized", str(problem), doing) from None


def check(answer: httpx.Response, doing: str) -> None:
    """Raise ApiError for an answer that is an error."""
    if not answer.is_error:
        return
    try:
        status = answer.json()
        message, reason = str(status.get("message", "")), str(status.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = answer.text[:200], ""
    raise ApiError(answer.status_code, reason, message or f"HTTP {answer.status_code}", doing)
