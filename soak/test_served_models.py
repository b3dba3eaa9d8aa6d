"""A model server under 64 clients for ten minutes, with everything done to it: prints what it cost.

    OARLOCK_MOMENTS=1 .venv/bin/python -m pytest -s soak/test_served_models.py

On this machine a replica is killed every 5 s and a version published every 20 s; every tenth body is
nonsense, and 100 connections never finish their requests. On the cluster nodes are drained and the model
updated, one after the other. SECONDS in the environment shortens both.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.deployments import rollout
from tests.support.clusters import Cluster
from tests.support.commands import Command
from tests.support.kubernetes.causes import drained
from tests.support.kubernetes.driving import Named, unused
from tests.support.kubernetes.serving import IMAGE, answer_of, answering, asked, write_model
from tests.support.model_servers import clients, model_server, publish
from tests.support.server_faults import Faults, half_open, memory
from tests.support.waiting import eventually

pytest_plugins = ["tests.kubernetes.conftest"]
SECONDS = float(os.environ.get("SECONDS", "600"))
KILL, PUBLISH = 5.0, 20.0  # seconds
SIZE = ("--set", "serve.cpu=0.3", "--set", "serve.memory=300Mi")  # of a pod
GROWTH = 64 << 20  # bytes: the pages of a heap that is in use settle within this


@pytest.mark.soak
@pytest.mark.timeout(3 * SECONDS + 600)
def test_ten_minutes_of_everything(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    publish(folder, 1)
    with model_server(folder, tmp_path, replicas=2, queue=60.0, deadline=120.0) as server:
        with half_open(server, 100), clients(server, 64, range(1, 100_000), is_rude=True) as asking:
            faults = Faults(server, folder, asking, seed=int(time.time()))
            faults.publish()  # by now everything has been loaded once
            faults.scale(2)  # and the replicas of the version before it are gone
            used = memory(server)
            began = time.monotonic()
            kills = publishes = began
            while (now := time.monotonic()) < began + SECONDS:
                if now >= publishes:
                    publishes = now + PUBLISH
                    faults.publish_broken() if faults.version % 5 == 0 else faults.publish()
                if now >= kills:
                    kills = now + KILL
                    faults.kill()
                time.sleep(0.1)
            faults.scale(2)
            grown = memory(server) - used
        answers, lost = sum(one.answers for one in asking), sum(len(one.failures) for one in asking)
        print(
            f"\n{answers} answers, {sum(one.refused for one in asking)} refusals of nonsense, {lost} lost in "
            f"{faults.kills} killed replicas, {faults.version} versions, memory {grown / 2**20:+.1f} MiB"
        )
        faults.check()
        assert lost <= 64 * faults.kills
        assert grown < GROWTH


@pytest.mark.soak
@pytest.mark.timeout(3 * SECONDS + 1200)
def test_updates_and_drained_nodes_on_a_cluster(
    oarlock: Command, cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    """No request fails: not one was in a process that was killed."""
    name, factor, drains = unused(), 1, 0
    words = ("--on", "kubernetes", "-d", "--name", name, "--model-name", "adder", "--replicas", "2")

    def serve() -> None:
        folder = write_model(tmp_path / f"times-{factor}", factor)
        done = oarlock("serve", str(folder), *words, *SIZE, *IMAGE, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr

    def node() -> str:
        """One that has a pod which answers."""
        return str(eventually(lambda: answering(api, name), "pods", 300)[0]["spec"]["nodeName"])

    try:
        serve()
        with asked(api, name, 64) as asking:
            began = time.monotonic()
            while drains == 0 or time.monotonic() < began + SECONDS:
                with drained(cluster, node(), selecting(name)):
                    drains += 1
                    eventually(lambda: len(answering(api, name)) == 2, "pods on the other node", 300)
                factor += 1
                serve()
                asking.until_seen(answer_of(factor))
            counts = asking.end()
        good = {answer_of(one) for one in range(1, factor + 1)}
        told = {said: count for said, count in counts.items() if said not in good}
        print(
            f"\n{sum(counts.values())} answers, {drains} drained nodes, {factor - 1} updates; failed: {told}"
        )
        assert counts.keys() == good
    finally:
        rollout.delete(api, Named(name), now=True, patience=300)
    assert rollout.remaining(api, Named(name)) == []
