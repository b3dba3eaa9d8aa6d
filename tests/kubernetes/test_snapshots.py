"""Snapshots on a cluster: a leader without a volume is lost, and another goes on from the bucket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from tests.support.clusters import Cluster
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Driver, driving
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, EXPORTS, SAVES, Store, complete, needs_store, newest, state_after
from tests.support.waiting import eventually

pytestmark = needs_store


@pytest.fixture
def driver(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path, cluster.user, api) as found:
        yield found


@pytest.fixture
def store(api: Api, tmp_path: Path) -> Iterator[Store]:
    """Where pods reach this machine: at the API server's address."""
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    yield store
    store.kill()


def test_a_leader_without_a_volume_goes_on_from_its_snapshots(
    driver: Driver, api: Api, store: Store, tmp_path: Path
) -> None:
    folder = driver.job(
        SAVES,
        roles={"worker": SMALL},
        args=["200", "1000", "0.1"],
        storage={"snapshots": f"s3://{BUCKET}/mine"},
        kubernetes={"claim": "none", "secrets": {driver.secret(store.env()): {"variables": True}}},
    )
    run = driver.start(folder)
    eventually(lambda: newest(complete(store, run.name)) >= 5, "snapshot of step 5")
    [pod] = api.all("Pod", f"{selecting(run.name)},{LEAD}=true")
    api.delete("Pod", pod["metadata"]["name"])
    run.succeed()
    first, second = (int(line.split()[-1]) for line in run.lines["worker-0"] if "starting after" in line)
    assert (first, second >= 5) == (0, True), run.told
    weights = store.objects()[f"mine/{run.name}/model/weights/state"]
    assert weights.read_bytes() == state_after(200)
    told = (
        run.told
        + subprocess.run(
            ["grep", "-r", store.key, str(tmp_path)], capture_output=True, text=True, check=False
        ).stdout
    )
    assert store.key not in told


@only_in_soak
def test_a_model_that_is_exported_while_it_trains_answers_without_a_volume(
    driver: Driver, api: Api, store: Store
) -> None:
    folder = driver.job(
        EXPORTS,
        roles={"worker": SMALL},
        args=["0", "10", "0.1", "until moved"],
        storage={"snapshots": f"s3://{BUCKET}/mine"},
        kubernetes={"claim": "none", "secrets": {driver.secret(store.env()): {"variables": True}}},
    )
    run = driver.start(folder)

    def numbers() -> list[int]:
        found = [name for name in complete(store, run.name) if name.startswith("model/")]
        return sorted(int(name[6:]) for name in found)

    def answer() -> float:
        words = [str(SCRIPT), "predict", "-m", run.name, "--json", "1.0"]
        env = {**run.env, **store.env()}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        [value] = json.loads(done.stdout)["outputs"].values()
        return float(value)

    eventually(numbers, "version in the bucket")
    first = answer()
    assert first % 10 == 0, "of a step at which it exports, while it trains"
    before = numbers()[-1]
    [pod] = api.all("Pod", f"{selecting(run.name)},{LEAD}=true")
    api.delete("Pod", pod["metadata"]["name"])
    run.succeed()
    assert numbers()[-1] > before, "the pod that took over continues the numbers"
    assert answer() > first
