"""The bearer token that clients must send, if the settings name a file with one."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from pathlib import Path

from oarlock.serving.dialects.exchange import Refused

_LOOK_EVERY = 1.0  # seconds; a mounted Secret changes while the server runs


class TokenCheck:
    """Compares what a client sent with the file's content."""

    def __init__(self, file: str) -> None:
        """Raise OSError or ValueError if the named file holds no token."""
        self._file = Path(file) if file else None
        self._token = b"" if self._file is None else _read(self._file)
        self._next_look = time.monotonic() + _LOOK_EVERY

    @property
    def is_needed(self) -> bool:
        """Whether a request needs a token at all."""
        return self._file is not None

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise Refused with 401 unless the token is right."""
        if self._file is None:
            return
        if time.monotonic() >= self._next_look:
            self._look_again(self._file)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            said = "the token is wrong" if token else "this server wants a token"
            raise Refused(
                401, f"{said}; send `Authorization: Bearer TOKEN`", [(b"www-authenticate", b"Bearer")]
            )

    def _look_again(self, file: Path) -> None:
        self._next_look = time.monotonic() + _LOOK_EVERY
        try:
            self._token = _read(file)
        except (OSError, ValueError):
            pass  # being replaced: the last good one counts


def _read(file: Path) -> bytes:
    token = file.read_bytes().strip()
    if not token:
        raise ValueError(f"the token file {file} is empty")
    return token
