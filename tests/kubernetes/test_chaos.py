"""`oarlock chaos` on a cluster: pods are deleted and evicted, tasks killed, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.cli.chaos_run import faults_drawn
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import RUN, selecting
from oarlock.records import runs
from tests.support.commands import Command
from tests.support.kubernetes.driving import until_stepping, written
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

NAME = "chaotic"
STEPS = """
import time, oarlock
state = oarlock.State(sum=0)
for step in state.steps(10**6, save=20):
    state.sum += step
    time.sleep(0.05)
    state.report(sum=state.sum)
"""
SEED = 57  # delete the leading pod, kill, evict the other: a test below holds it to that
KINDS = ("delete", "kill", "evict")


@pytest.fixture
def protected(admin: Api) -> Iterator[None]:
    """By a disruption budget that lets nobody go."""
    path = f"apis/policy/v1/namespaces/{admin.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {RUN: NAME}}}
    metadata = {"name": NAME}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    admin.send("POST", path, body=body)
    # Before it is looked at, it refuses in other words.
    eventually(lambda: "observedGeneration" in admin.raw(f"{path}/{NAME}").get("status", {}), "a budget")
    yield
    admin.send("DELETE", f"{path}/{NAME}")


def test_pods_and_tasks_are_taken_away_and_no_step_is_lost(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended.append(NAME)
    program = written(tmp_path / "program", STEPS)
    done = oarlock("run", "--on", "kubernetes", "-d", "--name", NAME, "-n", "2", *SMALL_WORDS, str(program))
    assert done.returncode == 0, done.stderr
    until_stepping(runs.find(NAME), 1)
    words = ("--yes", "--every", "2s", "--kinds", ",".join(KINDS), "--faults", "3", "--seed", str(SEED))
    done = oarlock("chaos", NAME, *words, "--json", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    faults = report["faults"]
    print(
        *[(fault["kind"], fault["target"], fault["seconds"], fault["repeated"]) for fault in faults], sep="\n"
    )
    assert [fault["kind"] for fault in faults] == list(KINDS)
    assert (report["recovered"], report["refused"], report["state"]) == (3, 0, "running")
    assert report["generations"] >= 3
    for fault in faults:
        if fault["kind"] != "kill":
            assert fault["target"].startswith(f"{NAME}-")
            assert fault["resumed"] == fault["step"] + 1, "asked to leave, it saves the step it is at"
    told = [json.loads(line) for line in oarlock("events", "--json", NAME).stdout.splitlines()]
    notes = [event["text"] for event in told if event["kind"] == "note" and "chaos: " in event["text"]]
    words_of = {"delete": "deleted", "kill": "killed", "evict": "asked to evict"}
    assert notes == [f"chaos: {words_of[fault['kind']]} {fault['target']}" for fault in faults]


def test_the_seed_draws_each_kind_once() -> None:
    drawn = faults_drawn.draws(SEED, KINDS, 1.0)
    assert [next(drawn).kind for _ in range(3)] == list(KINDS)


@only_in_soak
def test_a_disruption_budget_may_refuse_and_that_is_no_fault(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str], protected: None
) -> None:
    ended.append(NAME)
    program = written(tmp_path / "program", STEPS)
    done = oarlock("run", "--on", "kubernetes", "-d", "--name", NAME, "-n", "2", *SMALL_WORDS, str(program))
    assert done.returncode == 0, done.stderr
    until_stepping(runs.find(NAME), 1)
    before = {pod["metadata"]["name"] for pod in api.all("Pod", selecting(NAME))}
    done = oarlock("chaos", NAME, "--yes", "--every", "0.1s", "--kinds", "evict", "--faults", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was refused: Cannot evict pod as it would violate the pod's disruption budget" in done.stdout
    assert "faults           0, 0 recovered\nrefused          1\n" in done.stdout
    assert {pod["metadata"]["name"] for pod in api.all("Pod", selecting(NAME))} == before
    assert json.loads(oarlock("status", "--json", NAME).stdout)["generation"] == 1
