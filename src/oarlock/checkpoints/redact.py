"""The error of an object store as one line without any keys.

Servers repeat the access key, and what was signed with it, when they refuse a request, and obstore's errors
include all of that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|SAS|AUTH|CERT", re.IGNORECASE)
_SHORTEST = 4  # characters of a value worth hiding: `true` and `1` appear in many sentences
_HARMLESS = re.compile(r"true|false|none|auto", re.IGNORECASE)
_LONGEST = 300


def reason(error: BaseException) -> str:
    """The server's own code and message, or the end of the error's first line, without secrets."""
    text = str(error)
    code, message = (_tag(name, text) for name in ("Code", "Message"))
    if code:
        line = f"{code}: {message}" if message else code
    else:
        line = text.strip().split("\n", 1)[0].rpartition(" - ")[2] or type(error).__name__
        address = re.search(r"https?://[^\s/?]+", text)
        if address and "HTTP error" in line:
            line = f"{line} ({address[0]})"
    return redacted(line)[:_LONGEST]


def kind(error: BaseException) -> str:
    """What errors that differ only in numbers have in common."""
    return re.sub(r"\d+", "", reason(error))


def is_refusal(error: BaseException) -> bool:
    """Whether the server refuses (wrong key, no such bucket), so that a retry rarely helps."""
    return re.search(r"status code: 40[0134]\b", str(error)) is not None


def redacted(text: str, env: Mapping[str, str] = os.environ) -> str:
    """`text` without the value of any variable that looks secret, and without credentials before an @."""
    values = {value for name, value in env.items() if _SECRET.search(name) and _is_worth_hiding(value)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return re.sub(r"(://)[^/@\s]*@", r"\1***@", text)


def _is_worth_hiding(value: str) -> bool:
    return len(value) >= _SHORTEST and not _HARMLESS.fullmatch(value)


def _tag(name: str, text: str) -> str:
    """The tag's first line: Azure adds the request number and the time, which differ in every error."""
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    return found[1].strip().partition("\n")[0].strip() if found else ""
