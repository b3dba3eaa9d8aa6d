"""A server with a certificate of its own, over https alone; and Prometheus, which sends a bearer token."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from oarlock.serving.settings import Settings
from tests.support import certificates
from tests.support.certificates import needs_openssl
from tests.support.model_servers import model_server, publish


@needs_openssl
def test_it_answers_over_https_alone(tmp_path: Path) -> None:
    publish(tmp_path / "sums", 2)
    certificate, key = certificates.make(tmp_path)
    with model_server(tmp_path / "sums", tmp_path, tls_cert=str(certificate), tls_key=str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        body = b'{"inputs": {"x": [[1, 2]]}}'
        where = f"{server.url}/v1/models/sums:predict"
        trusting = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(where, body, timeout=120, context=trusting) as answer:
            assert json.load(answer)["outputs"]["y"] == [6]
        with pytest.raises(urllib.error.URLError, match="self-signed certificate"):
            urllib.request.urlopen(where, body, timeout=120)
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(where.replace("https", "http"), body, timeout=120)
        # The printed line works as it stands.
        done = subprocess.run(server.told.curl, shell=True, capture_output=True, text=True, check=False)
        assert json.loads(done.stdout)["outputs"]["y"] == [0], done.stderr


@needs_openssl
def test_a_wrong_key_is_one_sentence_and_no_server(tmp_path: Path) -> None:
    publish(tmp_path / "sums", 2)
    certificate, _ = certificates.make(tmp_path)
    _, other = certificates.make(tmp_path, "other")
    file = tmp_path / "serving.json"
    given = Settings("sums", str(tmp_path / "sums"), port=0, tls_cert=str(certificate), tls_key=str(other))
    file.write_text(given.to_json())
    words = [sys.executable, "-m", "oarlock.serving", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (1, f"{other} is not the key of {certificate}\n")
