"""`/` and the files of the page. They need no token: the page asks for it."""

from __future__ import annotations

from oarlock.serving.dialects.exchange import Answer, Call, Handler
from oarlock.serving.page import page_files

# Nothing from other origins, and no embedding in other sites.
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)


def handlers() -> dict[str, Handler]:
    """Return the handler for each address of the page."""
    found = {f"/page/{name}": _handler(name) for name in page_files.NAMES if name != "index.html"}
    return {"/": _handler("index.html"), **found}


def _handler(name: str) -> Handler:
    content, content_type = page_files.read(name)

    async def answer(call: Call) -> Answer:
        return Answer(content, content_type=content_type, headers=_HEADERS)

    return answer
