"""Kubeconfigs that sign in by a program: a real one, against the real API server."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from tests.support.clusters import Cluster

# Notes each call, and answers as `answers` says: the last one again and again.
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "calls").open("a") as file:
    file.write(os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
answers = json.loads((folder / "answers").read_text())
status = answers[min(len((folder / "calls").read_text().splitlines()), len(answers)) - 1]
if "fails" in status:
    sys.exit(status["fails"])
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
print(json.dumps({"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}))
"""
PAST, FUTURE = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


class Plugin:
    token = ""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        context = {"name": "c", "context": {"cluster": config["clusters"][0]["name"], "user": "u"}}
        user: dict[str, Any] = {"name": "u", "user": {}}
        self.config = {**config, "contexts": [context], "users": [user], "current-context": "c"}
        (folder / "sign-in").write_text(PROGRAM)
        (folder / "sign-in").chmod(0o755)

    def answers(self, *statuses: dict[str, Any], version: str = "v1", command: str = "./sign-in") -> None:
        (self.folder / "calls").unlink(missing_ok=True)
        (self.folder / "answers").write_text(json.dumps(statuses))
        self.config["users"][0]["user"]["exec"] = {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": command,
            "args": [str(self.folder)],
            "interactiveMode": "IfAvailable",
            "installHint": "get it at\nthe desk",
        }
        (self.folder / "config").write_text(json.dumps(self.config))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def plugin(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    config = json.loads(cluster.user.read_text())
    token = config["users"][0]["user"].get("token")
    if not token:
        pytest.skip("needs a user with a token")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = Plugin(tmp_path, config)
    found.config["contexts"][0]["context"]["namespace"] = "team"
    found.token = token
    return found


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_program_signs_in(plugin: Plugin, version: str) -> None:
    plugin.answers({"token": plugin.token, "expirationTimestamp": FUTURE}, version=version)
    with closing(Api()) as api:
        assert api.known_user() == api.user == "editor"
    [asked] = plugin.calls
    assert asked["apiVersion"] == f"client.authentication.k8s.io/{version}"
    assert asked["spec"]["interactive"] is False
    assert asked["spec"]["cluster"]["server"] == api.server


def test_it_is_asked_again_when_its_answer_ends_and_when_that_is_refused(plugin: Plugin) -> None:
    late = {"token": plugin.token, "expirationTimestamp": PAST}
    plugin.answers(late, {"token": plugin.token, "expirationTimestamp": FUTURE})
    with closing(Api()) as api:
        for _ in range(3):
            api.all("Job")
    assert len(plugin.calls) == 2
    plugin.answers({"token": "withdrawn"}, {"token": plugin.token})
    with closing(Api()) as api:
        for _ in range(3):
            api.all("Job")
    assert len(plugin.calls) == 2


def test_a_wrong_answer_is_asked_for_twice_and_not_for_ever(plugin: Plugin) -> None:
    plugin.answers({"token": "wrong"})
    with closing(Api()) as api, pytest.raises(ApiError) as refused:
        api.all("Job")
    assert refused.value.status == 401
    assert len(plugin.calls) == 2


class Peer(http.server.BaseHTTPRequestHandler):
    """An API server that knows its users by their certificates, as many do; the tests' own does not."""

    protocol_version = "HTTP/1.1"  # connections are used again

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        subject = dict(pair for [pair] in self.connection.getpeercert()["subject"])
        said = json.dumps({"status": {"userInfo": {"username": subject["commonName"]}}}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[str]:
    """The server's address. `tmp_path` has ca.pem, and alice.pem and bob.pem with their keys."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
    openssl(*new, "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-addext", "keyUsage=keyCertSign")
    for name in ("server", "alice", "bob"):
        words = (
            *new,
            f"{name}.key",
            "-out",
            f"{name}.crt",
            "-subj",
            f"/CN={name}",
            "-CA",
            "ca.pem",
            "-CAkey",
        )
        openssl(*words, "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Peer) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_it_may_give_a_certificate_and_another_when_that_ends(
    tmp_path: Path, certified: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [
        {
            "clientCertificateData": (tmp_path / f"{name}.crt").read_text(),
            "clientKeyData": (tmp_path / f"{name}.key").read_text(),
        }
        for name in ("alice", "bob")
    ]
    cluster = {"server": certified, "certificate-authority": "ca.pem"}
    plugin = Plugin(tmp_path, {"clusters": [{"name": "c", "cluster": cluster}]})
    plugin.answers({**pairs[0], "expirationTimestamp": PAST}, pairs[1])
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with closing(Api()) as api:
        known = [api.known_user() for _ in range(3)]  # the second may still be on the first connection
        assert (known[0], known[2]) == ("alice", "bob")
    assert len(plugin.calls) == 2
    authority = base64.b64encode((tmp_path / "ca.pem").read_bytes()).decode()
    assert plugin.calls[0]["spec"]["cluster"]["certificate-authority-data"] == authority


@pytest.mark.parametrize(
    ("answer", "how", "told"),
    [
        ({"fails": "no network\nno such account"}, {}, "failed (exit code 1): no such account"),
        ({}, {}, "gave no credential"),
        ({}, {"version": "v7"}, "client.authentication.k8s.io/v7"),
        (
            {},
            {"command": "nowhere-to-be-found"},
            "cannot be started: No such file or directory; get it at the desk",
        ),
    ],
)
def test_one_that_does_not_sign_in_is_one_line(
    oarlock: Callable[..., Any], plugin: Plugin, answer: dict[str, str], how: dict[str, str], told: str
) -> None:
    plugin.answers(answer, **how)
    (plugin.folder / "train.py").write_text("print()")
    done = oarlock("run", "--on", "kubernetes", "train.py")
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert told in oarlock("doctor", "--on", "kubernetes").stdout
