"""A real cluster for the tests, one test run at a time, seen as a user with the role `edit` sees it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster

from oarlock.engines.kubernetes import ending
from oarlock.engines.kubernetes.api import Api
from oarlock.engines.kubernetes.labels import JOB, selecting

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT.parent / "shared" / "kube" / "cluster"
FOLDER = Path("/tmp/oarlock-kube")
HOW = (
    "no cluster for the Kubernetes tests: start one (kind create cluster, minikube start) "
    "and name its file in OARLOCK_TEST_KUBECONFIG"
)
_WAIT = 150.0  # seconds for another test run to end


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    given = os.environ.get("OARLOCK_TEST_KUBECONFIG")
    if not SCRIPT.exists() and not given:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(HOW)
    with (Path(tempfile.gettempdir()) / "oarlock-kube-tests.lock").open("w") as lock:
        _take(lock.fileno())
        if SCRIPT.exists():
            subprocess.run([SCRIPT, "up", "--venv", ".venv"], cwd=ROOT, check=True, capture_output=True)
            yield Cluster(FOLDER / "edit.kubeconfig", FOLDER / "admin.kubeconfig", SCRIPT)
        else:
            assert given
            yield Cluster(Path(given), Path(os.environ.get("OARLOCK_TEST_ADMIN_KUBECONFIG", given)))


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
        ending.delete(api, name, now=True, patience=60)
        for job in jobs:
            if not ending.users_of(api, job, but=[name]):
                ending.delete_claims(api, ending.claims_of(api, job), 60)


def _connected(kubeconfig: Path, namespace: str | None) -> Iterator[Api]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        connection = Api(namespace=namespace)
    yield connection
    connection.close()


def _take(lock: int) -> None:
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                pytest.fail("another test run uses the cluster")
            time.sleep(0.5)
