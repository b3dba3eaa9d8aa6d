"""Kubeconfigs that sign in by a program: a real one, against the real API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster

from oarlock.engines.kubernetes.api import Api, ApiError

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
    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.config = json.loads(cluster.user.read_text())
        self.token = self.config["users"][0]["user"].pop("token", "")
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
    found = Plugin(tmp_path, cluster)
    if not found.token:
        pytest.skip("needs a user with a token")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return found


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_program_signs_in(plugin: Plugin, version: str) -> None:
    plugin.answers({"token": plugin.token, "expirationTimestamp": FUTURE}, version=version)
    api = Api()
    assert api.known_user() == api.user == "editor"
    [asked] = plugin.calls
    assert asked["apiVersion"] == f"client.authentication.k8s.io/{version}"
    assert asked["spec"]["interactive"] is False
    assert asked["spec"]["cluster"]["server"] == api.server


def test_it_is_asked_again_when_its_answer_ends_and_when_that_is_refused(plugin: Plugin) -> None:
    late = {"token": plugin.token, "expirationTimestamp": PAST}
    plugin.answers(late, {"token": plugin.token, "expirationTimestamp": FUTURE})
    api = Api()
    for _ in range(3):
        api.all("Job")
    assert len(plugin.calls) == 2
    plugin.answers({"token": "withdrawn"}, {"token": plugin.token})
    api = Api()
    for _ in range(3):
        api.all("Job")
    assert len(plugin.calls) == 2


def test_a_wrong_answer_is_asked_for_twice_and_not_for_ever(plugin: Plugin) -> None:
    plugin.answers({"token": "wrong"})
    with pytest.raises(ApiError) as refused:
        Api().all("Job")
    assert refused.value.status == 401
    assert len(plugin.calls) == 2


def test_it_may_give_a_certificate(plugin: Plugin, cluster: Cluster, tmp_path: Path) -> None:
    """Signed by the cluster's own authority, which the test cluster leaves lying about."""
    authority = cluster.folder / "ca.key"
    if not authority.exists():
        pytest.skip("needs the cluster's authority")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    subject = ("-subj", "/CN=editor")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "csr", *subject)
    signer = ("-CA", str(cluster.folder / "ca.crt"), "-CAkey", str(authority), "-CAserial", "serial")
    openssl("x509", "-req", "-in", "csr", *signer, "-CAcreateserial", "-out", "crt", "-days", "1")
    pair = {
        "clientCertificateData": (tmp_path / "crt").read_text(),
        "clientKeyData": (tmp_path / "key").read_text(),
    }
    plugin.answers({**pair, "expirationTimestamp": PAST}, pair)
    api = Api()
    assert api.known_user() == "editor"
    assert api.known_user() == "editor"
    assert len(plugin.calls) == 2


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
