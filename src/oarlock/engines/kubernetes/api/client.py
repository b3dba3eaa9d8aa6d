"""A client of a cluster's API server: plain objects in, plain objects out, and one kind of error.

lightkube reads the kubeconfig and logs in. The requests are our own, because manifests are plain data here
(what a user adds under `pod:` must arrive as it was written) and logs are read by exact time.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cached_property

import httpx2 as httpx
from lightkube.config import client_adapter

from oarlock.engines.kubernetes.api import http_errors, kubeconfig
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.login import ExecLogin
from oarlock.engines.kubernetes.api.names import Object
from oarlock.engines.kubernetes.api.object_paths import PATHS
from oarlock.errors import OarlockError
from oarlock.system.lines import Lines

_TIMEOUT = 10.0
_PAGE = 500
_MANAGER = "oarlock"


class Api:
    """One user's access to one namespace. Safe to use from several threads."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._config = kubeconfig.load(context)
        self.context = context or self._config.context_name
        self.namespace = namespace or self._config.namespace
        self.server = str(self._config.cluster.server)
        self._lock = threading.Lock()

    @cached_property
    def http(self) -> httpx.Client:
        """The connections, opened on first use. Raises OarlockError if the kubeconfig cannot be used."""
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
        """The user's name on the cluster, or this machine's name for them if the cluster does not say."""
        return self.known_user() or f"uid {os.getuid()} on {socket.gethostname()}"

    def known_user(self) -> str | None:
        """The user's name by the server; None if it does not say. Raises ApiError for an unknown user."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self.send("POST", "apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
        except ApiError as error:
            if error.status in (403, 404):
                return None
            raise
        return str(_object(answer)["status"]["userInfo"]["username"])

    def time(self) -> float | None:
        """The server's clock, in whole seconds; None if it does not say."""
        try:
            return parsedate_to_datetime(self.send("GET", "version").headers["Date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None

    def close(self) -> None:
        """Close the connections."""
        if "http" in self.__dict__:
            self.http.close()

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object; with `dry_run`, only have the server check it."""
        params = {
            "fieldManager": _MANAGER,
            "fieldValidation": "Strict",
            **({"dryRun": "All"} if dry_run else {}),
        }
        return _object(self.send("POST", self._path(manifest["kind"]), params=params, body=manifest))

    def get(self, kind: str, name: str) -> Object:
        """The object; raises ApiError if there is none."""
        return _object(self.send("GET", self._path(kind, name)))

    def find(self, kind: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return self.get(kind, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def all(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        """All objects of a kind with these labels and fields."""
        return self.all_with_version(kind, labels, fields)[0]

    def some(self, kind: str, labels: str, fields: str = "", most: int = _PAGE) -> list[Object]:
        """The first `most` objects (one page)."""
        params = {"limit": str(most), "labelSelector": labels, "fieldSelector": fields}
        page = _object(self.send("GET", self._path(kind), params=params))
        return [_slim(found) for found in page["items"]]

    def all_with_version(self, kind: str, labels: str = "", fields: str = "") -> tuple[list[Object], str]:
        """All objects, read page by page, and the version from which to watch."""
        found: list[Object] = []
        params = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = _object(self.send("GET", self._path(kind), params=params))
            found += map(_slim, page["items"])
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return found, str(metadata["resourceVersion"])
            params = {**params, "continue": metadata["continue"]}

    def patch(self, kind: str, name: str, change: Object | list[Object], patch: str = "merge") -> Object:
        """Change an object by a merge patch, by a `strategic-merge` one or, with a list, by a `json` one."""
        content_type = f"application/{patch}-patch+json"
        params = {"fieldManager": _MANAGER}
        path = self._path(kind, name)
        return _object(self.send("PATCH", path, params=params, body=change, content_type=content_type))

    def change(self, kind: str, found: Object, change: Object, patch: str = "merge") -> Object:
        """Patch exactly the object that was found: the server refuses it for another one of the same name."""
        metadata = {**change.get("metadata", {}), **uid_of(found)}
        return self.patch(kind, found["metadata"]["name"], {**change, "metadata": metadata}, patch)

    def delete(
        self, kind: str, name: str, *, grace: int | None = None, only: Mapping[str, str] | None = None
    ) -> None:
        """Delete an object in the background, with all that it owns; no error if it does not exist.

        `only` has the uid or the resourceVersion of the object that is meant: another one of the same name
        stays.
        """
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
        """Evict a pod as draining a node does; refused with 429 if a disruption budget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        self.send("POST", self._path("Pod", pod) + "/eviction", body=body)

    def delete_all(self, kind: str, labels: str) -> None:
        """Delete all objects with the labels. The API has no such call for Services: those go one by one."""
        if kind == "Service":
            for service in self.all(kind, labels):
                self.delete(kind, service["metadata"]["name"], only=uid_of(service))
            return
        params, body = {"labelSelector": labels}, {"propagationPolicy": "Background"}
        self.send("DELETE", self._path(kind), params=params, body=body)

    def watch(self, kind: str, labels: str, version: str) -> Iterator[Object]:
        """Yield changes from `version` on, with bookmarks, until the server ends the watch."""
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
        """Yield the lines of a pod's log without line ends; `patience` is each read's timeout."""
        with self.stream(self._path("Pod", pod) + "/log", params, patience) as answer:
            lines = Lines()
            for chunk in answer.iter_bytes():
                yield from lines.feed(chunk)
            if lines.rest:
                yield lines.rest

    def review(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Whether this user may do this in the namespace."""
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
        """Read any other path of the server, such as `version`."""
        return _object(self.send("GET", path))

    def text(self, path: str) -> str:
        """Read a path that answers with text, such as a pod's own answer through the server."""
        return self.send("GET", path).text

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], patience: float | None = None
    ) -> Iterator[httpx.Response]:
        """Have an answer without a time limit inside a `with` block, to read as it arrives."""
        forever = httpx.Timeout(_TIMEOUT, read=patience)
        with (
            http_errors.translated(f"GET {path}"),
            self.http.stream("GET", path, params=_given(params), timeout=forever) as answer,
        ):
            if answer.is_error:
                answer.read()
            http_errors.check(answer, f"GET {path}")
            yield answer

    def _path(self, kind: str, name: str = "") -> str:
        root, plural = PATHS[kind]
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | list[Object] | None = None,
        content_type: str = "application/json",
    ) -> httpx.Response:
        """Send a request; raises ApiError for a refusal or if there is no answer."""
        doing = f"{method} {path}"
        with http_errors.translated(doing):
            answer = self.http.request(
                method,
                path,
                params=_given(params or {}),
                content=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": content_type} if body is not None else None,
            )
            http_errors.check(answer, doing)
            return answer


def _given(params: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}


def _object(answer: httpx.Response) -> Object:
    content: Object = answer.json()
    return content


def uid_of(found: Object) -> dict[str, str]:
    """The precondition that names exactly this object."""
    return {"uid": found["metadata"]["uid"]}


def _slim(found: Object) -> Object:
    """The object without its history of changes, which is most of it and not used here."""
    metadata = found.get("metadata", {})
    if "managedFields" not in metadata:
        return found
    return {**found, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
