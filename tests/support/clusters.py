"""The cluster that tests use, as its users and its script see it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

# Every kind of object that a user with the role `edit` can make.
_KINDS = (
    "all,configmaps,secrets,persistentvolumeclaims,networkpolicies,"
    "ingresses,serviceaccounts,poddisruptionbudgets,horizontalpodautoscalers"
)


class Cluster(NamedTuple):
    user: Path  # the kubeconfig of one with the role edit
    admin: Path
    script: Path | None = None  # breaks the cluster on request, where it is our own

    @property
    def folder(self) -> Path:
        """The other users' files are there."""
        return self.user.parent

    def do(self, *words: str) -> None:
        """A fault, or its end: `stop-api`, `cut-node 2`."""
        assert self.script is not None
        subprocess.run([self.script, *words], check=True, capture_output=True, timeout=300)


def as_user(cluster: Cluster, user: str, home: Path) -> dict[str, str]:
    """The environment of another user, on another machine."""
    config = str(cluster.folder / f"{user}.kubeconfig")
    return {**os.environ, "KUBECONFIG": config, "OARLOCK_HOME": str(home)}


def everything(cluster: Cluster, label: str) -> list[str]:
    """All objects that carry the label, asked of kubectl."""
    folder = cluster.folder
    words = [folder / "bin" / "kubectl", "--kubeconfig", folder / "edit.kubeconfig", "get", _KINDS]
    done = subprocess.run(
        [*map(str, words), "-l", label, "-o", "name"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()
