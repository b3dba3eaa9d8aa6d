"""A real cluster for the tests, one test run at a time, seen as a user with the role `edit` sees it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import JOB, selecting
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support import locks
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import Named

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT.parent / "shared" / "kube" / "cluster"
FOLDER = Path("/tmp/oarlock-kube")
HOW = (
    "no cluster for the Kubernetes tests: start one (kind create cluster, minikube start) "
    "and name its file in OARLOCK_TEST_KUBECONFIG"
)
_PLACE = Path(tempfile.gettempdir())
_LOCK = _PLACE / "oarlock-kube-tests.lock"  # one test run at a time
_UP = _PLACE / "oarlock-kube-up.lock"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    given = os.environ.get("OARLOCK_TEST_KUBECONFIG")
    if not SCRIPT.exists() and not given:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(HOW)
    with locks.of_this_run(_LOCK):
        with locks.held(_UP):
            found = _up(given)
        yield found


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[Api]:
    yield from _connected(cluster.user, "team" if cluster.script else None)


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> Iterator[Api]:
    yield from _connected(cluster.admin, "team" if cluster.script else None)


@pytest.fixture(autouse=True)
def surroundings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own; who uses the cluster is the user with the role `edit`."""
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "home"))
    if "cluster" in request.fixturenames:
        monkeypatch.setenv("KUBECONFIG", str(request.getfixturevalue("cluster").user))


@pytest.fixture
def ended(api: Api) -> Iterator[list[str]]:
    """Names of runs: what the test leaves of them on the cluster is deleted, their jobs' claims too."""
    names: list[str] = []
    yield names
    for name in names:
        jobs = {found["metadata"]["labels"][JOB] for found in api.all("Job", selecting(name))}
        stop_delete.delete(api, Named(name), now=True, patience=300)
        for job in jobs:
            if not stop_delete.users_of(api, job, but=[name]):
                stop_delete.delete_claims(api, stop_delete.claims_of(api, job), 60)


def _up(given: str | None) -> Cluster:
    if SCRIPT.exists():
        subprocess.run([SCRIPT, "up", "--venv", ".venv"], cwd=ROOT, check=True, capture_output=True)
        return Cluster(FOLDER / "edit.kubeconfig", FOLDER / "admin.kubeconfig", SCRIPT)
    assert given
    return Cluster(Path(given), Path(os.environ.get("OARLOCK_TEST_ADMIN_KUBECONFIG", given)))


def _connected(kubeconfig: Path, namespace: str | None) -> Iterator[Api]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        connection = Api(namespace=namespace)
    yield connection
    connection.close()
