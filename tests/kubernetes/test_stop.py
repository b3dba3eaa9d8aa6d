"""`oarlock stop --now` and `delete --force` on a cluster: without the grace, also after it has begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, STOPPED, selecting
from oarlock.engines.kubernetes.follow import pod_status
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.records.run_folder import RunFolder
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import (
    Driver,
    Named,
    Started,
    driving,
    jobs_of,
    refreshed,
    told,
    until_all_step,
)
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import cases, only_in_soak
from tests.support.waiting import eventually

# Longer than `stop --now` waits for the end.
JOB: dict[str, Any] = {
    "roles": {"worker": {"replicas": 2, **SMALL}},
    "limits": {"restarts": 0, "grace": "10m"},
}

# Asked to leave it stays.
STUBBORN = """
import signal, time, oarlock
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(10**6):
    oarlock.current().report(step=step + 1)
    time.sleep(0.05)
"""

# It would leave before a step that never comes.
STUCK = """
import time, oarlock
state = oarlock.State(sum=0)
for step in state.steps(10**6, save=None):
    state.report()
    time.sleep(0 if step < 3 else 10**6)
"""

# Stubborn, with something in its hands that the next run needs.
HOLDING = """
import fcntl, os, sys, time, oarlock
me = oarlock.current()
if me.is_chief:
    held, deadline = open(me.data / "held", "w"), time.monotonic() + 200
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit("another still has it")
            time.sleep(0.05)
if "NEXT" in os.environ:
    sys.exit(0)
"""


@pytest.fixture
def driver(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path, cluster.user, api) as found:
        yield found


@pytest.mark.parametrize("program", cases([STUBBORN], soak=[STUCK]), ids=cases(["stubborn"], soak=["stuck"]))
def test_stop_now_ends_what_a_stop_only_asked_to_leave(driver: Driver, api: Api, program: str) -> None:
    run = driver.start(driver.job(program, **JOB, kubernetes={"claim": "none"}), "-d").succeed()
    until_all_step(driver, run.name, 1, 2)
    asking = Started(run.name, driver, ["stop", run.name], driver.kubeconfig)
    try:
        eventually(lambda: refreshed(driver.record(run.name)).state().state == "stopping", "stop")
        eventually(
            lambda: all(map(is_leaving, api.all("Pod", Named(run.name).members))), "pods on their way out"
        )
        done = driver.call("stop", "--now", run.name)
        assert (done.returncode, done.stdout) == (0, f"{run.name} stopped\n"), done.stderr
        assert asking.succeed().out == f"{run.name} stopped\n"
        assert_no_pod_runs(api, run.name)
    finally:
        asking.process.kill()
        asking.end()


def test_stop_now_waits_for_nobody_and_the_run_can_go_on(driver: Driver, api: Api) -> None:
    run = driver.start(driver.job(STUBBORN, **JOB), "-d").succeed()
    generations = cases([1], soak=[2])
    for generation in generations:
        until_all_step(driver, run.name, generation, 2)
        done = driver.call("stop", "--now", run.name)
        assert (done.returncode, done.stdout) == (0, f"{run.name} stopped\n"), done.stderr
        assert_no_pod_runs(api, run.name)
        assert driver.call("run", "--resume", run.name, "-d").returncode == 0
    until_all_step(driver, run.name, len(generations) + 1, 2)


def test_a_run_that_fails_while_it_is_being_stopped_can_go_on(driver: Driver, api: Api) -> None:
    """A worker's node may hear of the stop seconds before the leader's, which then gives a verdict, and waits
    for the worker to come back and hear it."""
    run = driver.start(driver.job(STUBBORN, **JOB), "-d").succeed()
    until_all_step(driver, run.name, 1, 2)
    api.change("Job", jobs_of(api, run.name)["worker"], {"spec": {"suspend": True}})
    for pod in api.all("Pod", f"{selecting(run.name)},!{LEAD}"):
        api.delete("Pod", pod["metadata"]["name"], grace=0)
    until_failed(driver.record(run.name))
    stop_delete.stop(api, Named(run.name), now=True)
    eventually(lambda: not api.all("Pod", selecting(run.name)), "end of the pods")
    assert driver.call("run", "--resume", run.name, "-d").returncode == 0
    until_all_step(driver, run.name, 2, 2)


@only_in_soak
def test_a_run_that_ends_while_it_is_being_stopped_can_go_on(driver: Driver, api: Api) -> None:
    """Its Jobs are complete, and start no pod again."""
    run = driver.start(driver.job(STUBBORN, **JOB), "-d").succeed()
    until_all_step(driver, run.name, 1, 2)
    lead = jobs_of(api, run.name)["lead"]
    api.change("Job", lead, {"metadata": {"annotations": {STOPPED: "stopped by the user"}}})
    victim = driver.record(run.name).state().tasks["worker-1"].pid
    [pod] = api.all("Pod", f"{selecting(run.name)},!{LEAD}")
    pod_exec.run(api, pod["metadata"]["name"], ["python3", "-c", f"import os; os.kill({victim}, 9)"])
    until_failed(driver.record(run.name))
    assert driver.call("run", "--resume", run.name, "-d").returncode == 0
    until_all_step(driver, run.name, 2, 2)


def until_failed(record: RunFolder) -> None:
    eventually(lambda: refreshed(record).state().state == "failed", "verdict", evidence=lambda: told(record))


@only_in_soak
def test_delete_by_force_leaves_nobody_behind(driver: Driver) -> None:
    """The objects are gone at once; so are the processes, which would have what the next run needs."""
    folder = driver.job(HOLDING + STUBBORN, **JOB)
    run = driver.start(folder, "-d").succeed()
    until_all_step(driver, run.name, 1, 2)
    assert driver.call("delete", "--force", run.name).returncode == 0
    driver.start(folder, "--env", "NEXT=1").succeed()


def assert_no_pod_runs(api: Api, run: str) -> None:
    """The objects of those that have ended are gone when the Job controller has counted them."""
    assert not any(map(pod_status.is_alive, api.all("Pod", Named(run).members)))
    eventually(lambda: not api.all("Pod", Named(run).members), "removal of ended pods")


def is_leaving(pod: dict[str, dict[str, str]]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
