"""An evaluator on another node than the leader, whose claim only the leader mounts: it gets every checkpoint
over the wire. `oarlock evaluate` gives its scores once more, on this machine and on the cluster."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, selecting
from tests.support.clusters import Cluster
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Driver, driving, nodes_of, until_stepping
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, Store, needs_store
from tests.support.waiting import eventually

# The evaluator's pod loses its container once; the last digits show that it restored what was trained.
PROGRAM = """
import os, signal, time, oarlock
me = oarlock.current()
state = oarlock.State(height=0.0, large=[0.0] * 100_000)
if me.role == "evaluator":
    for step in state.follow():
        mark = me.eval / "killed"
        if me.is_launched and "OARLOCK_EVALUATE" not in os.environ and step >= 40 and not mark.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.report(height=state.height)
else:
    for step in state.steps(60, save=20, keep=100):
        state._session.finish()
        state.height += 1 / 3
        time.sleep(0.05)
"""
# Scores by the data that an ingest has prepared. Of one step it fails, of another it never gets ready.
JUDGED = """
import os, sys, time, oarlock
me = oarlock.current()
state = oarlock.State(height=0.0)
if me.role == "evaluator":
    weight = float((me.data / "weight").read_text())
    for step in state.follow():
        is_asked = "OARLOCK_EVALUATE" in os.environ
        print("looking at", step, "with", os.environ.get("OMP_NUM_THREADS"), "thread", flush=True)
        if is_asked and step == 40 and len(os.environ["OARLOCK_EVALUATE"].split()) == 1:
            sys.exit("the pictures are upside down")
        while is_asked and step == 20 and len(os.environ["OARLOCK_EVALUATE"].split()) == 1:
            time.sleep(0.1)
        state.report(height=state.height * weight)
else:
    for step in state.steps(int(sys.argv[1]), save=20, keep=5):
        state._session.finish()
        state.height += 1 / 3
        time.sleep(0.05)
"""
INGEST = """
import oarlock
(oarlock.current().data / "weight").write_text("0.7")
print("prepared")
"""


@pytest.fixture
def driver(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path, cluster.user, api) as found:
        yield found


def test_an_evaluator_without_the_volume_scores_every_checkpoint(driver: Driver, api: Api) -> None:
    height, heights = 0.0, {}
    for step in range(1, 61):
        height += 1 / 3
        if step % 20 == 0:
            heights[step] = height
    folder = driver.job(PROGRAM, roles={"worker": SMALL, "evaluator": SMALL})
    run = driver.start(folder).succeed(300)
    assert len(nodes_of(api, run.name)) == 2
    record = driver.record(run.name)
    reports = [event for event in record.events() if event.get("task") == "evaluator-0" and "height" in event]
    assert {report["step"]: report["height"] for report in reports} == heights, run.told
    state = record.state()
    assert (state.tasks["worker-0"].starts, state.tasks["evaluator-0"].starts) == (1, 2)
    assert "scored: height " in run.out
    for where in ("local", "kubernetes"):
        again = driver.call("evaluate", "--on", where, f"{run.name}@40", "--json")
        assert again.returncode == 0, again.stderr
        (score,) = json.loads(again.stdout)["scores"]
        assert (score["step"], score["metrics"]) == (40, {"height": heights[40]})
    newest = driver.call("evaluate", run.name)
    assert newest.stdout.splitlines()[1].split() == ["60", "20"], newest.stdout
    every = driver.call("evaluate", "--on", "kubernetes", run.name, "--all", "--json")
    assert every.returncode == 0, every.stderr
    scores = json.loads(every.stdout)["scores"]
    assert {one["step"]: one["metrics"]["height"] for one in scores} == heights
    assert f"scoring {run.name} in a pod, beside its claim" in every.stderr
    missing = driver.call("evaluate", "--on", "kubernetes", f"{run.name}@61")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"oarlock: {run.name} has no checkpoint of step 61; it has 20, 40, 60\n" in missing.stderr
    _is_clean(api, run.name)


def test_a_run_is_scored_on_its_cluster_with_its_data_while_it_trains(driver: Driver, api: Api) -> None:
    folder = driver.job(
        JUDGED, roles={"worker": SMALL}, args=["100000"], ingest={"program": "ingest.py", **SMALL}
    )
    (folder / "ingest.py").write_text(INGEST)
    run = driver.start(folder)
    record = driver.record(run.name)
    until_stepping(record, 1, size=1)
    eventually(lambda: max(_saved(driver, run.name), default=0) >= 60, "checkpoint of step 60")
    scored = driver.call("evaluate", "--on", "kubernetes", run.name, "--json")
    assert scored.returncode == 0, scored.stderr
    (score,) = json.loads(scored.stdout)["scores"]
    height = 0.0
    for _ in range(score["step"]):
        height += 1 / 3
    assert score["metrics"] == {"height": height * 0.7}
    assert f"looking at {score['step']} with 1 thread" in scored.stderr
    assert "prepared" not in scored.stderr, "its data is on the claim"
    assert record.state().scores["height"].latest == height * 0.7
    here = driver.call("evaluate", run.name)
    assert (here.returncode, "the data of" in here.stderr, "--on kubernetes" in here.stderr) == (
        1,
        True,
        True,
    )
    # The leader and the training have noticed nothing.
    assert record.state().tasks["worker-0"].starts == 1
    _is_clean(api, run.name)


@only_in_soak
def test_its_failure_is_the_programs_and_ctrl_c_leaves_no_pod(driver: Driver, api: Api) -> None:
    folder = driver.job(
        JUDGED, roles={"worker": SMALL}, args=["60"], ingest={"program": "ingest.py", **SMALL}
    )
    (folder / "ingest.py").write_text(INGEST)
    run = driver.start(folder).succeed(300)
    failed = driver.call("evaluate", "--on", "kubernetes", f"{run.name}@40")
    assert (failed.returncode, failed.stdout) == (1, ""), failed.stderr
    *_, words, last = failed.stderr.splitlines()
    assert words == "the pictures are upside down"
    assert last == "oarlock: the evaluator ended with exit code 1: nothing is stored"
    assert not driver.record(run.name).state().scores
    command = [str(SCRIPT), "evaluate", "--on", "kubernetes", f"{run.name}@20"]
    env = driver.env(driver.kubeconfig)
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        assert any("looking at 20" in line for line in client.stderr)
        [pod] = api.all("Pod", f"{selecting(run.name)},{HELPER}=evaluate")
        assert not [one for one in pod["spec"]["volumes"] if "secret" in one or "projected" in one][1:]
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=60)
    assert client.returncode == 130
    _is_clean(api, run.name)


@only_in_soak
@needs_store
def test_without_a_claim_it_is_scored_from_its_snapshots(driver: Driver, api: Api, tmp_path: Path) -> None:
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    try:
        folder = driver.job(
            JUDGED,
            roles={"worker": SMALL},
            args=["60"],
            ingest={"program": "ingest.py", **SMALL},
            storage={"snapshots": f"s3://{BUCKET}/mine"},
            kubernetes={"claim": "none", "secrets": {driver.secret(store.env()): {"variables": True}}},
        )
        (folder / "ingest.py").write_text(INGEST)
        run = driver.start(folder).succeed(300)
        scored = driver.call("evaluate", "--on", "kubernetes", run.name, "--json")
        assert scored.returncode == 0, scored.stderr
        (score,) = json.loads(scored.stdout)["scores"]
        height = 0.0
        for _ in range(60):
            height += 1 / 3
        assert (score["step"], score["metrics"]) == (60, {"height": height * 0.7})
        assert f"scoring {run.name} in a pod, from its snapshots" in scored.stderr
        assert "prepared" in scored.stderr, "no volume has its data"
        assert store.key not in scored.stderr
    finally:
        store.kill()


def _saved(driver: Driver, name: str) -> list[int]:
    """The steps of its checkpoints."""
    listed = driver.call("checkpoints", name, "--json")
    assert listed.returncode == 0, listed.stderr
    return [one["step"] for one in json.loads(listed.stdout)["checkpoints"]]


def _is_clean(api: Api, run: str) -> None:
    eventually(lambda: not _left(api, run), "end of the pod, its Job and its ConfigMap")


def _left(api: Api, run: str) -> list[str]:
    found = [*api.all("Pod", f"{selecting(run)},{HELPER}"), *api.all("Job", f"{HELPER}=evaluate")]
    names = [one["metadata"]["name"] for one in found]
    names += [
        one["metadata"]["name"] for one in api.all("ConfigMap") if "-evaluate-" in one["metadata"]["name"]
    ]
    return [name for name in names if name.startswith(run)]
