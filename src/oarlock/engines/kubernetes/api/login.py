"""Log in with a program that the kubeconfig names (`exec:`), by client.authentication.k8s.io.

lightkube runs such programs too, but knows neither v1, which kubeconfigs have had for years, nor
certificates, nor when a token expires.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import UserExec

from oarlock.errors import OarlockError

_API = "client.authentication.k8s.io/"
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_EARLY = 30.0  # seconds before its expiry at which a credential is renewed
_PATIENCE = 600.0  # seconds: the user may have to type a code into a browser


class LoginError(OarlockError):
    """The login program failed; says why in one line."""


class ExecLogin(httpx.Auth):
    """Runs the program before the first request, when its credential expires, and once after a 401."""

    def __init__(self, config: SingleConfig, tls: ssl.SSLContext) -> None:
        assert config.user is not None
        assert config.user.exec is not None
        self._program: UserExec = config.user.exec
        self._config = config
        self._tls = tls
        self._lock = threading.Lock()
        self._credential: dict[str, Any] | None = None
        self._ends = float("inf")

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign each request, as httpx asks; requests of several threads share one credential."""
        used = self._sign(request)
        response = yield request
        if response.status_code == 401:
            with self._lock:
                if self._credential is used:  # else another thread has renewed it
                    self._credential = None
            self._sign(request)
            yield request

    def _sign(self, request: httpx.Request) -> dict[str, Any]:
        with self._lock:
            if self._credential is None or time.time() > self._ends - _EARLY:
                if self._credential and self._credential.get("clientCertificateData"):
                    request.headers["Connection"] = "close"  # the next one is made with the new certificate
                self._credential = self._ask()
            credential = self._credential
        if credential.get("token"):
            request.headers["Authorization"] = f"Bearer {credential['token']}"
        return credential

    def _ask(self) -> dict[str, Any]:
        said = self._run()
        try:
            status = json.loads(said)["status"]
            if not status.get("token") and not status.get("clientCertificateData"):
                raise KeyError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LoginError(f"{self._told} gave no credential: {said.strip()[:100]!r}") from None
        ends = status.get("expirationTimestamp")
        self._ends = datetime.fromisoformat(ends.replace("Z", "+00:00")).timestamp() if ends else float("inf")
        if status.get("clientCertificateData"):
            _load(self._tls, status["clientCertificateData"], status["clientKeyData"])
        found: dict[str, Any] = status
        return found

    @property
    def _told(self) -> str:
        return f"{self._program.command}, by which the kubeconfig signs in,"

    def _run(self) -> str:
        version = self._program.apiVersion.removeprefix(_API)
        if version not in _VERSIONS or version == self._program.apiVersion:
            raise LoginError(
                f"the kubeconfig signs in by {self._program.apiVersion}, which is not known here"
            )
        command = self._program.command
        if "/" in command:
            command = str(self._config.abs_file(command))
        is_interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        info = json.dumps(self._info(is_interactive))
        given = {one.name: one.value for one in self._program.env or []}
        try:
            done = subprocess.run(
                [command, *(self._program.args or [])],
                env={**os.environ, **given, "KUBERNETES_EXEC_INFO": info},
                stdin=None if is_interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if is_interactive else subprocess.PIPE,  # it may prompt there
                text=True,
                errors="replace",
                timeout=_PATIENCE,
                check=False,
            )
        except OSError as problem:
            hint = " ".join((self._program.installHint or "").split())
            raise LoginError(
                f"{self._told} cannot be started: {problem.strerror}{f'; {hint}' if hint else ''}"
            ) from None
        except subprocess.TimeoutExpired:
            raise LoginError(f"{self._told} has not ended after {_PATIENCE:g} s") from None
        if done.returncode:
            last = ((done.stderr or "").strip().splitlines() or ["it said nothing"])[-1]
            raise LoginError(f"{self._told} failed (exit code {done.returncode}): {last[:200]}")
        return done.stdout

    def _info(self, is_interactive: bool) -> dict[str, Any]:
        """What the program gets as its input: the cluster, and whether it can prompt the user."""
        cluster = self._config.cluster
        about: dict[str, Any] = {"server": cluster.server, "insecure-skip-tls-verify": cluster.insecure}
        authority = cluster.certificate_auth_data
        if authority is None and cluster.certificate_auth:
            file = Path(self._config.abs_file(cluster.certificate_auth))
            authority = base64.b64encode(file.read_bytes()).decode()
        if authority:
            about["certificate-authority-data"] = authority
        spec = {"interactive": is_interactive, "cluster": about}
        return {"apiVersion": self._program.apiVersion, "kind": "ExecCredential", "spec": spec}


def _load(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate, which OpenSSL reads only from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        tls.load_cert_chain(file.name)
