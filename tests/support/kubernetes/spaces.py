"""A namespace of a test's own, with its own quotas and rights: made by the administrator, gone afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.client import Api
from tests.support.waiting import eventually

RBAC = "rbac.authorization.k8s.io"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@contextmanager
def own(cluster: Any, labels: Mapping[str, str], rules: list[dict[str, Any]] | None = None) -> Iterator[Api]:
    """As the administrator sees it. The users have their usual roles there, or only what `rules` say."""
    if not cluster.script:
        pytest.skip("needs a cluster of our own")
    name = f"tool-{secrets.token_hex(3)}"
    admin = connected(cluster.admin, name)
    try:
        _make(admin, "api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
        if rules is not None:
            _make(admin, _rbac(name, "roles"), {"metadata": {"name": "few"}, "rules": rules})
        for user, role in (("viewer", "view"), ("editor", "edit")):
            kind, role = ("ClusterRole", role) if rules is None else ("Role", "few")
            binding = {
                "metadata": {"name": user},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
            }
            _make(admin, _rbac(name, "rolebindings"), binding)
        _wait(admin, cluster.user, rules)
        yield admin
    finally:
        admin.http.delete(f"api/v1/namespaces/{name}")
        admin.close()


def connected(kubeconfig: Path, namespace: str | None = None) -> Api:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        return Api(namespace=namespace)


def _wait(admin: Api, user: Path, rules: list[dict[str, Any]] | None) -> None:
    """Until the user may do there what the last binding says, and pods can have their service account."""
    rule = rules[0] if rules else {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    they = connected(user, admin.namespace)
    what = rule["verbs"][0], rule["apiGroups"][0], rule["resources"][0]
    eventually(lambda: they.review(*what), f"rights in {admin.namespace}")
    they.close()
    account = f"api/v1/namespaces/{admin.namespace}/serviceaccounts/default"
    eventually(lambda: admin.http.get(account).is_success, f"service account of {admin.namespace}")


def _rbac(namespace: str, kind: str) -> str:
    return f"apis/{RBAC}/v1/namespaces/{namespace}/{kind}"


def _make(admin: Api, path: str, body: dict[str, Any]) -> None:
    answer = admin.http.post(path, json=body)
    assert answer.status_code == 201, answer.text
