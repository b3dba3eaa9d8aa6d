"""A token, a certificate or a key that cannot be used is one sentence, which names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oarlock.serving.fleet import access_files
from oarlock.serving.settings import Settings
from tests.support import certificates
from tests.support.certificates import needs_openssl


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    _, key = certificates.make(folder)
    certificates.encrypt(key)
    certificates.make(folder, "other")
    (folder / "text").write_text("a certificate\n")
    (folder / "empty").touch()
    lines = (folder / "server.crt").read_text().splitlines()
    (folder / "damaged").write_text("\n".join([*lines[:4], "!!!!", *lines[5:]]))
    return folder


def settings(folder: Path, **files: str) -> Settings:
    found: dict[str, Any] = {name: str(folder / file) for name, file in files.items()}
    return Settings("m", "s", **found)


@needs_openssl
def test_a_certificate_and_its_key_are_accepted(made: Path) -> None:
    access_files.check(settings(made, tls_cert="server.crt", tls_key="server.key", token_file="text"))
    access_files.check(settings(made))


@needs_openssl
@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("none.crt", "server.key", r"none\.crt cannot be read: No such file or directory"),
        ("server.crt", "none.key", r"none\.key cannot be read: No such file or directory"),
        ("text", "server.key", r"text is not a certificate in PEM form"),
        ("server.crt", "text", r"text is not a private key in PEM form"),
        ("server.crt", "other.key", r"other\.key is not the key of .*server\.crt"),
        ("server.crt", "server.secret", r"server\.secret is encrypted: give a key without a passphrase"),
        ("damaged", "server.key", r"damaged and .*server\.key cannot be used: "),
    ],
)
def test_what_is_wrong_with_it_is_one_sentence(made: Path, cert: str, key: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        access_files.check(settings(made, tls_cert=cert, tls_key=key))
    assert "\n" not in str(caught.value)


def test_so_is_what_is_wrong_with_a_token(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for file, said in (("empty", "is empty"), ("none", "none cannot be read: No such file or directory")):
        with pytest.raises(ValueError, match=said):
            access_files.check(settings(tmp_path, token_file=file))
