"""The files in a server's settings that control access, checked before anything starts.

Each replica reads them itself; a bad file would be a repeated traceback there.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from oarlock.serving.http.token_check import TokenCheck
from oarlock.serving.settings import Settings

_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"


def check(settings: Settings) -> None:
    """Raise ValueError, with one sentence, if the token, the certificate or its key cannot be used."""
    try:
        TokenCheck(settings.token_file)
    except OSError as problem:
        raise ValueError(f"{settings.token_file} cannot be read: {problem.strerror}") from None
    if settings.tls_cert:
        _check_tls(settings.tls_cert, settings.tls_key)


def _check_tls(certificate: str, key: str) -> None:
    if _CERTIFICATE not in _content(certificate):
        raise ValueError(f"{certificate} is not a certificate in PEM form: it has no {_CERTIFICATE.decode()}")
    if _KEY not in _content(key):
        raise ValueError(f"{key} is not a private key in PEM form: it has no -----BEGIN PRIVATE KEY-----")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, _refuse)
    except _Encrypted:
        raise ValueError(f"{key} is encrypted: give a key without a passphrase") from None
    except ssl.SSLError as problem:
        if problem.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{key} is not the key of {certificate}") from None
        raise ValueError(f"{certificate} and {key} cannot be used: {problem.reason or problem}") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None


class _Encrypted(Exception):
    pass


def _refuse() -> str:
    """There is no terminal to type a passphrase."""
    raise _Encrypted
