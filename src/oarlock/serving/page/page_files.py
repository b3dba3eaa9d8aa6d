"""The files of the page, read once: from a folder or from the archive that travels into pods."""

from __future__ import annotations

import pkgutil

_TYPES = {"html": b"text/html; charset=utf-8", "css": b"text/css", "js": b"text/javascript; charset=utf-8"}
NAMES = (
    "index.html",
    "page.css",
    "page.js",
    "elements.js",
    "inputs.js",
    "images.js",
    "answers.js",
    "snippets.js",
)


def read(name: str) -> tuple[bytes, bytes]:
    """Return the content and the type of one of the page's files."""
    content = pkgutil.get_data(__package__, name)
    if content is None:
        raise FileNotFoundError(name)
    return content, _TYPES[name.rpartition(".")[2]]
