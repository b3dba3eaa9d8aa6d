"""`run --from` on a cluster: the weights come from the claim, from a bucket, or from this machine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oarlock.agent.protocol.pod_paths import program_folder
from oarlock.checkpoints.store import Store as CheckpointStore
from oarlock.checkpoints.store import checksum
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.manifests import packing
from oarlock.job.job_file import load
from tests.support.clusters import Cluster
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Driver, Started, driving
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, Store, needs_store

# Its weight is the number of steps that it and those before it have made.
TRAIN = """
import json, os, sys
import numpy as np
import oarlock
me = oarlock.current()
state = oarlock.State(params={"w": np.zeros((2, SIZE))}, optimizer={"m": np.zeros(3)})
told = [float(state.params["w"].mean()), float(state.optimizer["m"].mean()), state.step]
print("begins", json.dumps(told), flush=True)
for step in state.steps(10, save=5):
    if "die" in sys.argv and me.is_chief and me.generation == 1 and step == 7:
        state._session.finish()
        os._exit(7)
    state.params["w"] += 1
    state.optimizer["m"] += 1
"""
WORKERS = {"worker": {"replicas": 2, **SMALL}}


@pytest.fixture
def driver(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path, cluster.user, api) as found:
        yield found


def begins(run: Started) -> dict[str, list[list[float]]]:
    """What each task had when it began: weight, moment and step, by generation."""
    return {
        task: [json.loads(line[7:]) for line in lines if line.startswith("begins ")]
        for task, lines in run.lines.items()
    }


def small(size: int = 3) -> str:
    return TRAIN.replace("SIZE", str(size))


def test_from_a_run_on_the_same_claim_and_restarted(driver: Driver) -> None:
    folder = driver.job(small(), roles=WORKERS)
    first = driver.start(folder).succeed()
    assert set(map(str, begins(first)["worker-1"])) == {"[0.0, 0.0, 0]"}
    second = driver.start(folder, "--from", f"{first.name}@5", "--set", "args=[die]").succeed()
    assert begins(second)["worker-0"] == [[5.0, 0.0, 0], [10.0, 5.0, 5]], second.told
    assert begins(second)["worker-1"][-1] == [10.0, 5.0, 5], second.told
    assert f"starts from the weights of {first.name}, step 5: params" in second.out


@only_in_soak
def test_from_a_run_of_another_claim_which_is_handed_over(driver: Driver) -> None:
    first = driver.start(driver.job(small(), roles=WORKERS)).succeed()
    elsewhere = driver.job(small(), roles=WORKERS, kubernetes={"claim": "none"})
    second = driver.start(elsewhere, "--from", first.name).succeed()
    assert begins(second)["worker-1"] == [[10.0, 0.0, 0]], second.told
    assert f"copying checkpoints of {first.name}" in second.err


@only_in_soak
@needs_store
def test_from_a_bucket(driver: Driver, api: Api, tmp_path: Path) -> None:
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    try:
        url = f"s3://{BUCKET}/mine"
        secrets = {driver.secret(store.env()): {"variables": True}}
        kept: dict[str, Any] = {
            "storage": {"snapshots": url},
            "kubernetes": {"claim": "none", "secrets": secrets},
        }
        first = driver.start(driver.job(small(), roles=WORKERS, **kept)).succeed()
        folder = driver.job(small(), roles=WORKERS, kubernetes={"claim": "none", "secrets": secrets})
        for source in (first.name, f"{url}/{first.name}"):  # the run has no claim
            second = driver.start(folder, "--from", source).succeed()
            assert begins(second)["worker-0"] == [[10.0, 0.0, 0]], second.told
        nowhere = driver.start(folder, "--from", f"{url}/nobody").end()
        assert nowhere.code != 0
        assert f"{url}/nobody has no complete checkpoint" in nowhere.told
    finally:
        store.kill()


def test_other_weights_get_another_place_in_the_pod(tmp_path: Path) -> None:
    """Pure. A run keeps its checkpoint of step 0 if it came from the same place."""
    (tmp_path / "train.py").write_text("")

    def place(content: bytes) -> str:
        checkpoints = CheckpointStore(tmp_path / "one")
        draft = checkpoints.draft(5, 1)
        draft.mkdir(parents=True)
        (draft / "state").write_bytes(content)
        files = {"state": dict(zip(("size", "crc32"), checksum(draft / "state")))}
        checkpoints.commit(draft, {"format": 1, "run": "one", "generation": 1, "step": 5, "files": files})
        job = {"program": "train.py", "storage": {"weights": str(checkpoints.folder)}}
        jobfile = load(None, overrides=job, cwd=tmp_path, is_here=False)
        parcel = packing.pack(jobfile, "two")
        found = json.loads(parcel.spec)["weights"]
        inside = found.removeprefix(f"{program_folder('two')}/")
        with tarfile.open(fileobj=io.BytesIO(parcel.program)) as packed:
            assert f"{inside}/step-0000000005-g1/state" in packed.getnames()
        return str(found)

    assert place(b"some") == place(b"some")
    assert place(b"some") != place(b"other")


def test_from_a_run_of_this_machine(driver: Driver) -> None:
    folder = driver.job(small(), roles={"worker": {"replicas": 1, **SMALL}})
    words = [str(SCRIPT), "run", "--name", "trained-here", str(folder)]
    env = driver.env(driver.kubeconfig)
    here = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert here.returncode == 0, here.stderr
    there = driver.start(folder, "--from", "trained-here@5").succeed()
    assert begins(there)["worker-0"] == [[5.0, 0.0, 0]], there.told
    heavy = Path(env["OARLOCK_HOME"]) / "runs" / "trained-here" / "checkpoints" / "step-0000000005-g1"
    (heavy / "state.safetensors").write_bytes(os.urandom(9 << 20))
    refused = driver.start(folder, "--from", "trained-here@5").end()
    assert refused.code != 0
    assert "has changed since it was written" in refused.told or "bytes instead of" in refused.told
