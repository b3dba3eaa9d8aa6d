"""Certificates of one's own, by the program openssl."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None and os.environ.get("CI") != "true",
    reason="there is no openssl to make a certificate with",
)


def make(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    return certificate, key


def encrypt(key: Path) -> Path:
    """The same key with a passphrase."""
    made = key.with_suffix(".secret")
    _openssl("rsa", "-aes128", "-passout", "pass:open", "-in", str(key), "-out", str(made))
    return made


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=300)
