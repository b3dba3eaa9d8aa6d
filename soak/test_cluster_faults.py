"""A cluster under fire: whatever is lost, the run goes on and ends well. Prints how long each recovery took.

    .venv/bin/python -m pytest -s -p conftest soak/test_cluster_faults.py

"Joined" is the moment the leader forms the next generation with everybody. A stock cluster notices a lost
node after 40 s or more; the one of ../shared/kube after 16 s.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from waiting import eventually

from oarlock.engines.kubernetes import exec
from oarlock.engines.kubernetes.api import Api
from oarlock.engines.kubernetes.labels import LEAD, ROLE, selecting

pytest_plugins = ["kubernetes.conftest"]
OARLOCK = Path(sys.executable).with_name("oarlock")
Command = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("--set", "roles.worker.cpu=50m", "--set", "roles.worker.memory=200Mi", "--set", "limits.restarts=50")
STEPS = """
import sys, time, oarlock
me = oarlock.current()
step = 0
while time.time() < float(sys.argv[1]):
    step += 1
    print("step", step, "of generation", me.generation)
    me.report(step=step)
    time.sleep(0.05)
"""


class Run:
    """One on the cluster, with a client beside it or not."""

    def __init__(self, oarlock: Command, api: Api, name: str, workers: int = 3) -> None:
        self.oarlock, self.api, self.name = oarlock, api, name
        self.client: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        self.client = subprocess.Popen(
            [OARLOCK, "logs", "-f", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def unwatch(self) -> None:
        if self.client is not None:
            self.client.send_signal(signal.SIGKILL)
            self.client.wait()
            self.client = None

    def pods(self, which: str) -> list[dict[str, Any]]:
        found = self.api.all("Pod", f"{selecting(self.name)},{ROLE}")
        leads = [pod for pod in found if LEAD in pod["metadata"]["labels"]]
        others = [pod for pod in found if LEAD not in pod["metadata"]["labels"]]
        return {"leader": leads, "worker": others, "all": found}[which]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.oarlock("events", "--json", self.name).stdout.splitlines()]

    def generation(self) -> int:
        return max(
            (event["generation"] for event in self.events() if event["kind"] == "generation"), default=0
        )

    def is_stepping(self, generation: int) -> bool:
        state = json.loads(self.oarlock("status", "--json", self.name).stdout)
        return state["generation"] >= generation and all(
            task["state"] == "running" and (task["reported"] or 0) > self._formed(generation)
            for task in state["tasks"]
        )

    def _formed(self, generation: int) -> float:
        times = [e["t"] for e in self.events() if e["kind"] == "generation" and e["generation"] >= generation]
        return times[0] if times else float("inf")

    def recovers(self, fault: Callable[[], Any], what: str, seconds: float = 120) -> float:
        """Seconds from the fault to the generation with everybody in it."""
        before = self.generation()
        began = time.time()
        fault()
        eventually(lambda: self.is_stepping(before + 1), f"steps after: {what}", seconds, every=0.5)
        taken = self._formed(before + 1) - began
        print(f"\n{what:<40} {taken:6.1f} s", end="")
        return taken


@pytest.fixture
def live(
    oarlock: Command, api: Api, cluster: Cluster, tmp_path: Path, ended: list[str]
) -> Iterator[Callable[[str], Run]]:
    made: list[Run] = []

    def start(name: str) -> Run:
        ended.append(name)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(STEPS)
        words = ("run", "--on", "kubernetes", "-d", "--name", name, "-n", "3", *SMALL)
        done = oarlock(*words, "--set", f"name={name}", str(folder / "train.py"), str(time.time() + 900))
        assert done.returncode == 0, done.stderr
        made.append(Run(oarlock, api, name))
        eventually(lambda: made[-1].is_stepping(1), "first steps")
        return made[-1]

    yield start
    for run in made:
        run.unwatch()


def crash(run: Run) -> None:
    """The program, by SIGKILL, inside a worker's pod; its agent lives on."""
    find = (
        "import os, pathlib\n"
        "for entry in pathlib.Path('/proc').iterdir():\n"
        "    if entry.name.isdigit() and int(entry.name) > 1:\n"
        "        try: environ = (entry / 'environ').read_bytes()\n"
        "        except OSError: continue\n"
        "        stat = (entry / 'stat').read_text().rpartition(')')[2].split()\n"
        "        parent = int(stat[1])\n"
        "        if parent > 1: os.kill(int(entry.name), 9)\n"
    )
    exec.run(run.api, run.pods("worker")[0]["metadata"]["name"], ["python3", "-c", find])


def delete(run: Run, which: str) -> None:
    for pod in run.pods(which):
        run.api.delete("Pod", pod["metadata"]["name"])


def node_of(run: Run, which: str) -> str:
    return str(run.pods(which)[0]["spec"]["nodeName"]).rpartition("-")[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("with_client", [False, True], ids=["alone", "watched"])
def test_lost_pods(live: Callable[[str], Run], with_client: bool) -> None:
    run = live(f"fire-pods-{int(with_client)}")
    if with_client:
        run.watch()
    who = "with a client" if with_client else "with no client"
    assert run.recovers(lambda: crash(run), f"program killed, {who}") <= 10
    for which in ("worker", "leader", "all"):
        taken = run.recovers(lambda which=which: delete(run, which), f"pods deleted ({which}), {who}")
        assert taken <= (15 if with_client else 60)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("with_client", [False, True], ids=["alone", "watched"])
@pytest.mark.parametrize("fault", ["kill", "cut"])
@pytest.mark.parametrize("which", ["worker", "leader"])
def test_lost_nodes(
    live: Callable[[str], Run], cluster: Cluster, fault: str, which: str, with_client: bool
) -> None:
    run = live(f"fire-{fault}-{which}-{int(with_client)}")
    if with_client:
        run.watch()
    node = node_of(run, which)
    try:
        what = f"node of the {which} {fault}, {'with a' if with_client else 'with no'} client"
        assert run.recovers(lambda: cluster.do(f"{fault}-node", node), what, 240) <= 60
    finally:
        cluster.do("start-node" if fault == "kill" else "join-node", node)
    eventually(lambda: run.is_stepping(1), "steps after the node came back")


@pytest.mark.timeout(600)
def test_the_api_server_and_kubelets_are_away(live: Callable[[str], Run], cluster: Cluster) -> None:
    """Nobody notices: the run needs neither."""
    run = live("fire-api")
    run.watch()
    cluster.do("stop-api")
    until = time.time() + 20
    eventually(lambda: time.time() > until, "20 s without an API server", 30)
    cluster.do("start-api")
    for node in ("1", "2"):
        cluster.do("restart-kubelet", node)
    eventually(lambda: run.is_stepping(1), "steps seen again", 90)
    assert run.generation() == 1


@pytest.mark.timeout(600)
def test_a_drained_node_is_no_failure(live: Callable[[str], Run], cluster: Cluster) -> None:
    run = live("fire-drain")
    node = f"node-{node_of(run, 'worker')}"
    admin = ["--kubeconfig", str(cluster.admin)]
    kubectl = [str(cluster.folder / "bin" / "kubectl"), *admin]
    flags = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"]
    selector = ["--pod-selector", selecting(run.name)]
    try:
        words = [*kubectl, "drain", node, *flags, *selector]
        taken = run.recovers(lambda: subprocess.run(words, check=True, capture_output=True), "node drained")
        assert taken <= 60
    finally:
        subprocess.run([*kubectl, "uncordon", node], check=True, capture_output=True)
    assert json.loads(run.oarlock("status", "--json", run.name).stdout)["restarts"] == 0


@pytest.mark.timeout(1800)
def test_twenty_random_faults(live: Callable[[str], Run]) -> None:
    """Of any kind that needs no node; with a client that comes and goes."""
    chance = random.Random(int(os.environ.get("OARLOCK_SEED", "20")))
    run = live("fire-twenty")
    for number in range(20):
        run.unwatch()
        if chance.random() < 0.5:
            run.watch()
        kind = chance.choice(["crash", "worker", "leader", "all", "agent"])
        faults: dict[str, Callable[[], Any]] = {
            "crash": lambda: crash(run),
            "agent": lambda: exec.run(
                run.api,
                run.pods("worker")[0]["metadata"]["name"],
                ["python3", "-c", "import os; os.kill(1, 15)"],
            ),
        }
        run.recovers(
            faults.get(kind, lambda kind=kind: delete(run, kind)), f"fault {number + 1}: {kind}", seconds=700
        )
    told = run.events()
    generations = [event["generation"] for event in told if event["kind"] == "generation"]
    assert generations == sorted(set(generations))
    done = run.oarlock("stop", run.name)
    assert done.returncode == 0, done.stderr
