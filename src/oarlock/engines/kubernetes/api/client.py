"""Talking to a cluster's API server: plain objects in, plain objects out, and one kind of error.

lightkube reads the kubeconfig and signs in; requests are our own, because manifests are plain data here
(what a user adds under `pod:` must arrive as it was written) and logs are asked for by exact time.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cached_property

import httpx2 as httpx
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.login import ExecLogin, LoginError
from oarlock.engines.kubernetes.api.names import Object
from oarlock.errors import OarlockError

_TIMEOUT = 10.0
_PAGE = 500
_MANAGER = "oarlock"

# Where each kind lives. All that we ever create or look at.
_PATHS = {
    "Job": ("apis/batch/v1", "jobs"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Event": ("api/v1", "events"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "LimitRange": ("api/v1", "limitranges"),
}


class Api:
    """One user's view of one namespace. Safe to use from several threads."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._config = _config(context)
        self.context = context or self._config.context_name
        self.namespace = namespace or self._config.namespace
        self.server = str(self._config.cluster.server)
        self._lock = threading.Lock()

    @cached_property
    def http(self) -> httpx.Client:
        limits = client_adapter.ConnectionParams(timeout=httpx.Timeout(_TIMEOUT, connect=5.0))
        try:
            params = limits.httpx_params(self._config)
            if isinstance(params["auth"], client_adapter.ExecAuth):
                params["auth"] = ExecLogin(self._config, params["verify"])
            return httpx.Client(**params)
        except (OSError, ValueError) as problem:
            raise OarlockError(f"the kubeconfig cannot be used: {problem}") from None

    @cached_property
    def user(self) -> str:
        """Who we are to the cluster; by this machine where the cluster does not say."""
        return self.known_user() or f"uid {os.getuid()} on {socket.gethostname()}"

    def known_user(self) -> str | None:
        """As the server calls us, None where it does not say. Raises ApiError for a stranger."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self.send("POST", "apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
        except ApiError as error:
            if error.status in (403, 404):
                return None
            raise
        return str(_object(answer)["status"]["userInfo"]["username"])

    def time(self) -> float | None:
        """The server's clock, in whole seconds; None where it does not say."""
        try:
            return parsedate_to_datetime(self.send("GET", "version").headers["Date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None

    def close(self) -> None:
        if "http" in self.__dict__:
            self.http.close()

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        return self.create_warned(manifest, dry_run=dry_run)[0]

    def create_warned(self, manifest: Object, *, dry_run: bool = False) -> tuple[Object, list[str]]:
        """The object as the server keeps it, and what it warned of (Pod Security says so only there)."""
        params = {
            "fieldManager": _MANAGER,
            "fieldValidation": "Strict",
            **({"dryRun": "All"} if dry_run else {}),
        }
        answer = self.send("POST", self._path(manifest["kind"]), params=params, body=manifest)
        warned = [_unquoted(text) for text in answer.headers.get_list("Warning")]
        return _object(answer), warned

    def get(self, kind: str, name: str) -> Object:
        return _object(self.send("GET", self._path(kind, name)))

    def find(self, kind: str, name: str) -> Object | None:
        """The same, None where there is none."""
        try:
            return self.get(kind, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def all(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        return self.all_with_version(kind, labels, fields)[0]

    def some(self, kind: str, labels: str, fields: str = "", most: int = _PAGE) -> list[Object]:
        """The first ones."""
        params = {"limit": str(most), "labelSelector": labels, "fieldSelector": fields}
        page = _object(self.send("GET", self._path(kind), params=params))
        return [_slim(found) for found in page["items"]]

    def all_with_version(self, kind: str, labels: str = "", fields: str = "") -> tuple[list[Object], str]:
        """All of them, page by page, and the version from which to watch."""
        found: list[Object] = []
        params = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = _object(self.send("GET", self._path(kind), params=params))
            found += map(_slim, page["items"])
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return found, str(metadata["resourceVersion"])
            params = {**params, "continue": metadata["continue"]}

    def patch(self, kind: str, name: str, change: Object, patch: str = "merge") -> Object:
        """A merge patch, or a `strategic-merge` one."""
        return _object(
            self.send(
                "PATCH",
                self._path(kind, name),
                params={"fieldManager": _MANAGER},
                body=change,
                content_type=f"application/{patch}-patch+json",
            )
        )

    def change(self, kind: str, found: Object, change: Object, patch: str = "merge") -> Object:
        """A patch of the very object that was found: the server refuses it for another of the same name."""
        metadata = {**change.get("metadata", {}), **uid_of(found)}
        return self.patch(kind, found["metadata"]["name"], {**change, "metadata": metadata}, patch)

    def delete(
        self, kind: str, name: str, *, grace: int | None = None, only: Mapping[str, str] | None = None
    ) -> None:
        """In the background, with all that it owns. What is gone already is fine, and so is another object
        of the same name: `only` gives the uid or the resourceVersion of the one that is meant."""
        body: Object = {"propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if only:
            body["preconditions"] = dict(only)
        try:
            self.send("DELETE", self._path(kind, name), body=body)
        except ApiError as error:
            if error.status != 404 and not (only and error.status == 409):
                raise

    def evict(self, pod: str) -> None:
        """As a drained node does: asked for, and refused with 429 where a disruption budget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        self.send("POST", self._path("Pod", pod) + "/eviction", body=body)

    def delete_all(self, kind: str, labels: str) -> None:
        """All that carry the labels. Services know no such thing: they are deleted one by one."""
        if kind == "Service":
            for service in self.all(kind, labels):
                self.delete(kind, service["metadata"]["name"], only=uid_of(service))
            return
        body = {"propagationPolicy": "Background"}
        self.send("DELETE", self._path(kind), params={"labelSelector": labels}, body=body)

    def watch(self, kind: str, labels: str, version: str) -> Iterator[Object]:
        """Changes from `version` on, as they come; ends when the server ends it. Bookmarks included."""
        params = {
            "watch": "true",
            "labelSelector": labels,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "280",
        }
        with self.stream(self._path(kind), params) as answer:
            for line in answer.iter_lines():
                if line:
                    change = json.loads(line)
                    yield {**change, "object": _slim(change["object"])}

    def log(self, pod: str, patience: float | None = None, **params: str) -> Iterator[bytes]:
        """The lines of a pod's log, without their ends. `patience` is for each piece of it, in seconds."""
        with self.stream(self._path("Pod", pod) + "/log", params, patience) as answer:
            rest = b""
            for chunk in answer.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
            if rest:
                yield rest

    def review(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Whether this user may do that in the namespace."""
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(_object(self.send("POST", path, body=body))["status"].get("allowed"))

    def raw(self, path: str) -> Object:
        """Any other address of the server, such as `version`."""
        return _object(self.send("GET", path))

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], patience: float | None = None
    ) -> Iterator[httpx.Response]:
        """An answer that may take for ever, read as it comes."""
        forever = httpx.Timeout(_TIMEOUT, read=patience)
        with (
            _translated(f"GET {path}"),
            self.http.stream("GET", path, params=_given(params), timeout=forever) as answer,
        ):
            if answer.is_error:
                answer.read()
            _check(answer, f"GET {path}")
            yield answer

    def _path(self, kind: str, name: str = "") -> str:
        root, plural = _PATHS[kind]
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> httpx.Response:
        doing = f"{method} {path}"
        with _translated(doing):
            answer = self.http.request(
                method,
                path,
                params=_given(params or {}),
                content=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": content_type} if body is not None else None,
            )
            _check(answer, doing)
            return answer


def _config(context: str | None) -> SingleConfig:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = KubeConfig.from_env()
            if context is not None and context not in found.contexts:
                known = ", ".join(sorted(found.contexts)) or "none"
                raise OarlockError(f"the kubeconfig has no context {context}; it has {known}")
            config = found.get(context)
    except (ConfigError, OSError, ValueError, KeyError, TypeError) as problem:
        told = str(problem).strip() or type(problem).__name__
        raise OarlockError(f"no cluster to talk to: {told}; KUBECONFIG names the file to use") from None
    if config is None:
        raise OarlockError("the kubeconfig has no current context; choose one with --context")
    return config


def _given(params: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as problem:
        told = str(problem) or type(problem).__name__
        raise ApiError(0, "Unreachable", f"the API server does not answer ({told})", doing) from None
    except LoginError as problem:
        raise ApiError(401, "Unauthorized", str(problem), doing) from None


def _check(answer: httpx.Response, doing: str) -> None:
    if not answer.is_error:
        return
    try:
        told = answer.json()
        message, reason = str(told.get("message", "")), str(told.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = answer.text[:200], ""
    raise ApiError(answer.status_code, reason, message or f"HTTP {answer.status_code}", doing)


def _object(answer: httpx.Response) -> Object:
    told: Object = answer.json()
    return told


def uid_of(found: Object) -> dict[str, str]:
    return {"uid": found["metadata"]["uid"]}


def _slim(found: Object) -> Object:
    """Without who changed what when, which is most of an object and of no use here."""
    metadata = found.get("metadata", {})
    if "managedFields" not in metadata:
        return found
    return {**found, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _unquoted(warning: str) -> str:
    """`299 - "text"`, as HTTP writes it."""
    _, _, text = warning.partition('"')
    return text.rstrip('"').replace('\\"', '"')
