"""`oarlock checkpoints` of a run on a cluster: through its leading pod, after its end beside its claim."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oarlock.checkpoints import store as folders
from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, LEAD, selecting
from oarlock.engines.kubernetes.claims import claim_checkpoints, claim_pod
from oarlock.engines.shared import checkpoint_folder as here
from tests.support.clusters import Cluster
from tests.support.commands import Command
from tests.support.kubernetes.driving import driving, written
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, SAVES, Store, needs_store, state_after
from tests.support.waiting import eventually

NAME = "kept-listed"
TRAIN = """
import pathlib, time, oarlock
state = oarlock.State(x=0)
for step in state.steps(30, save=5, keep=10):
    state.x += step
    state.report(loss=1 / (step + 1))
    time.sleep(0.1)
while not pathlib.Path("/tmp/leave").exists():
    time.sleep(0.05)
"""


def listed(oarlock: Command, *words: str, code: int = 0) -> dict[str, Any]:
    done = oarlock("checkpoints", NAME, "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def steps(found: dict[str, Any]) -> list[int]:
    return [one["step"] for one in found["checkpoints"]]


def helpers(api: Api) -> list[dict[str, Any]]:
    return api.all("Pod", f"{selecting(NAME)},{HELPER}")


def test_they_are_listed_verified_and_deleted_while_it_runs_and_after(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended.append(NAME)
    program = written(tmp_path / "program", TRAIN)
    done = oarlock("run", "--on", "kubernetes", "-d", "--name", NAME, *SMALL_WORDS, str(program))
    assert done.returncode == 0, done.stderr
    [leader] = eventually(lambda: api.all("Pod", f"{selecting(NAME)},{LEAD}=true"), "leading pod")
    folder = f"/oarlock/store/runs/{NAME}/checkpoints"
    newest = f"{folder}/step-0000000030-g1"
    name = leader["metadata"]["name"]
    eventually(lambda: _is_there(api, name, newest), "last checkpoint", every=1.0)

    found = listed(oarlock)
    assert (found["run"], found["folder"], found["problem"]) == (NAME, folder, None)
    assert found["fence"] == {"run": NAME, "generation": 1}
    assert steps(found) == sorted(steps(found), reverse=True)
    assert (steps(found)[0], found["checkpoints"][0]["metrics"]) == (30, {"loss": 1 / 30})
    assert {one["state"] for one in listed(oarlock, "--verify")["checkpoints"]} == {"whole"}
    refused = oarlock("checkpoints", NAME, "--yes", "--delete", "30")
    assert refused.returncode == 1
    assert "step-0000000030-g1" in refused.stderr
    oldest = steps(found)[-1]
    assert listed(oarlock, "--yes", "--delete", str(oldest))["freed"] > 0
    assert steps(listed(oarlock)) == steps(found)[:-1]
    assert not helpers(api), "the leader was asked"

    bit = f"f = open('{newest}/state.safetensors', 'r+b'); f.seek(-1, 2); f.write(b'!')"
    assert pod_exec.run(api, name, ["python3", "-c", f"{bit}; open('/tmp/leave', 'w')"])[0] == 0
    assert oarlock("attach", NAME).returncode == 0

    after = listed(oarlock, "--verify", code=1)
    assert (steps(after), after["checkpoints"][0]["state"]) == (steps(found)[:-1], "broken")
    gone = listed(oarlock, "--yes", "--delete", "broken")
    assert [one["step"] for one in gone["deleted"]] == [30]
    assert steps(listed(oarlock)) == steps(found)[1:-1]
    eventually(lambda: not helpers(api), "end of the pods beside its claim")


@only_in_soak
@needs_store
def test_a_run_without_a_volume_has_its_snapshots(
    api: Api, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for from here, with this machine's credentials: its pods are gone."""
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    try:
        with driving(tmp_path, cluster.user, api) as driver:
            url = f"s3://{BUCKET}/mine"
            folder = driver.job(
                SAVES,
                roles={"worker": {"cpu": 0.05, "memory": "200Mi"}},
                args=["5", "1000", "0.1"],
                storage={"snapshots": url},
                kubernetes={"claim": "none", "secrets": {driver.secret(store.env()): {"variables": True}}},
            )
            run = driver.start(folder).succeed()
            for name, value in store.env().items():
                monkeypatch.setenv(name, value)
            done = driver.call("checkpoints", run.name, "--json")
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert "its job has no claim" in found["problem"]
            assert {one["where"] for one in found["checkpoints"]} == {f"{url}/{run.name}"}
            assert steps(found)[0] == 5
            place = tmp_path / "here"
            done = driver.call("pull", run.name, "--snapshots", "--what", "all", "--to", str(place))
            assert done.returncode == 0, done.stderr
            assert (place / "model" / "weights" / "state").read_bytes() == state_after(5)
            newest, _ = folders.Store(place / "checkpoints").newest()
            assert newest is not None
            assert newest.step == 5
    finally:
        store.kill()


def test_what_travels_is_alone_and_short(tmp_path: Path) -> None:
    """An interpreter with nothing installed; and the words of a command are part of an address."""
    (tmp_path / "step-0000000007-g2").mkdir()
    order = {"folder": str(tmp_path), "do": "entries", "verifies": False}
    words = ["-c", claim_checkpoints._START, claim_checkpoints._packed(), json.dumps(order)]
    assert sum(map(len, words)) < 8000
    done = subprocess.run([sys.executable, "-I", "-S", *words], capture_output=True, text=True, check=True)
    [found] = json.loads(done.stdout)
    assert (found["step"], found["generation"], found["why"]) == (7, 2, "it has no manifest")
    for module in (folders, here):
        ast.parse(inspect.getsource(module), feature_version=(3, 9))


def _is_there(api: Api, pod: str, path: str) -> bool:
    if not claim_pod.is_up(api.get("Pod", pod)):
        return False
    return pod_exec.run(api, pod, ["test", "-e", path])[0] == 0
