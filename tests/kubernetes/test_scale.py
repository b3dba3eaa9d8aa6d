"""`oarlock scale` on a cluster: the training stays what it was, and a client that dies breaks nothing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import JOB
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.records.run_folder import RunFolder
from tests.support import soaking
from tests.support.clusters import Cluster
from tests.support.commands import Command
from tests.support.kubernetes.driving import (
    TORCH,
    Driver,
    Named,
    Started,
    driving,
    jobs_of,
    until_all_step,
    unused,
)
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

SIZES = [2, 4, 1, 3] if soaking.IS_SOAK else [2, 1]
# After how many calls a client that scales is killed. -1 is between asking the leader and changing the Job.
POINTS = range(20) if soaking.IS_SOAK else (1, -1, 1000)
PATIENCE = 240.0  # seconds; four processes import torch on two cores
# The model and the batches of frameworks/programs/exact_torch.py. The losses are kept in the state: what a
# removed pod said last may be gone. train [STEPS]: without them until the last size has trained for a while.
TRAINING = (
    f"""
LAST = {SIZES[-1]}
"""
    + """
import json, sys, time
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
import oarlock

task = oarlock.current()
if task.world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
x = torch.randn(240, 16)
y = x.sum(1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
net = DistributedDataParallel(model) if task.world > 1 else model
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
batches = oarlock.data.Batches(240, 24, seed=3)
state = oarlock.State(model=net, optimizer=optimizer, schedule=schedule, losses=[], began=[])
state.began = [*state.began, [state.step, task.world]]
is_steady = len(sys.argv) > 1
total = int(sys.argv[1]) if is_steady else state.step + 12 if task.world == LAST else 10**6
for step in state.steps(total, save=None, batches=batches):
    mine = batches.mine(step)
    loss = mse_loss(net(x[mine]), y[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    whole = loss.detach() / task.world
    if task.world > 1:
        dist.all_reduce(whole)
    state.losses = [*state.losses, float(whole)]
    state.report(loss=whole)
    print("made", step)
    time.sleep(0 if is_steady else 0.05)
if task.is_chief:
    print("kept", json.dumps({"began": state.began, "losses": state.losses}))
"""
)

STEPS = """
import time, oarlock
state = oarlock.State(sum=0)
for step in state.steps(10**6, save=None):
    state.sum += step
    time.sleep(0.05)
"""

STUBBORN = """
import signal, time, oarlock
signal.signal(signal.SIGTERM, lambda *_: None)
for step in range(10**6):
    oarlock.current().report(step=step + 1)
    time.sleep(0.05)
"""

FAILS_AS_THREE = """
import sys, time, oarlock
me = oarlock.current()
if me.world == 3 and me.generation == 2:
    sys.exit(9)
for step in range(10**6 if me.world == 2 else 3):
    me.report(step=step + 1)
    time.sleep(0.05)
"""

# `oarlock`, killed after so many calls of the API, or with -1 at the first that changes something. Unlike in
# dying.py its watching thread's do not count: it surely dies between asking the leader and changing the Job.
MORTAL = """
import os, signal, sys, threading
from oarlock.cli import main
from oarlock.engines.kubernetes.api.client import Api

left, send = int(sys.argv.pop(1)), Api.send

def counted(self, *words, **named):
    global left
    if threading.current_thread() is threading.main_thread():
        if left == 0 or (left < 0 and words[0] == "PATCH"):
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    return send(self, *words, **named)

Api.send = counted
main()
"""


def test_scaled_up_and_down_the_losses_stay_those_of_two_workers(
    oarlock: Command, cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    roles = {"worker": {"replicas": 2, **SMALL, "memory": "1000Mi"}}
    with driving(tmp_path, cluster.user, api) as driver:
        folder = driver.job(
            TRAINING, framework="torch", roles=roles, limits={"restarts": 0}, kubernetes=TORCH
        )
        run = driver.start(folder)
        for generation, size in enumerate(SIZES, start=1):
            if generation > 1:
                done = driver.call("scale", run.name, str(size))
                told = f"{run.name} runs with {size} worker{'s' * (size > 1)} in generation {generation}\n"
                assert (done.returncode, done.stdout) == (0, told), done.stderr
            if generation < len(SIZES):  # the last ends by itself
                until_all_step(driver, run.name, generation, size, PATIENCE)
                until_pods(api, run.name, size)
        run.succeed(PATIENCE)
        assert parallelism(api, run.name) == {"lead": 1, "worker": SIZES[-1] - 1}
        state = json.loads(driver.call("status", "--json", run.name).stdout)
        assert (state["generation"], state["restarts"]) == (len(SIZES), 0)

    said = "\n".join(run.lines["worker-0"])
    [kept] = [json.loads(one) for one in re.findall(r"^kept (.*)", said, re.MULTILINE)]
    losses = kept["losses"]
    assert [world for _, world in kept["began"]] == SIZES
    assert [int(one) for one in re.findall(r"made (\d+)", said)] == list(range(len(losses)))
    begun = [step for step, _ in kept["began"]]
    assert begun[0] == 0
    assert begun == sorted(set(begun)), "each generation trained"
    assert losses == pytest.approx(steady(oarlock, folder, len(losses)), rel=1e-4)
    assert min(losses[-10:]) < 0.8 * losses[0], "it learns"


@soaking.only_in_soak
def test_a_client_that_dies_has_scaled_the_run_or_not_touched_it(
    cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    """One command later the pods are as many as the leader wants. That is given on another machine, which
    last saw the run before it was scaled."""
    outcomes, repaired, size, generation = [], 0, 2, 1
    with driving(tmp_path, cluster.user, api) as driver:
        roles = {"worker": {"replicas": size, **SMALL}}
        claim = {"claim": "none"}
        limits = {"restarts": 0, "grace": "5s"}
        run = driver.start(driver.job(STEPS, roles=roles, limits=limits, kubernetes=claim), "-d").succeed()
        until_all_step(driver, run.name, 1, size, PATIENCE)
        for calls in POINTS:
            other = 5 - size  # from 2 to 3, and from 3 to 2
            code = mortal(driver, calls, "scale", run.name, str(other))
            left = parallelism(api, run.name)["worker"] + 1
            assert driver.call("status", run.name).returncode == 0
            wanted = driver.record(run.name).state().workers or 2
            assert parallelism(api, run.name) == {"lead": 1, "worker": wanted - 1}, calls
            outcomes.append("untouched" if wanted == size else "scaled")
            repaired += left != wanted
            generation += wanted != size
            size = wanted
            until_all_step(driver, run.name, generation, size, PATIENCE)
            until_pods(api, run.name, size)
            if code == 0:
                break
        assert code == 0, "scaling takes more calls than that?"
        with_a_watcher(driver, run, 5 - size)
    assert outcomes == sorted(outcomes, reverse=True)  # untouched up to some call, scaled from there on
    assert outcomes.count("untouched") >= (3 if soaking.IS_SOAK else 1)
    assert repaired


def test_a_run_that_is_being_stopped_is_not_scaled(cluster: Cluster, api: Api, tmp_path: Path) -> None:
    with driving(tmp_path, cluster.user, api) as driver:
        roles = {"worker": {"replicas": 2, **SMALL}}
        limits = {"restarts": 0, "grace": "60s"}  # for as long it is being stopped
        folder = driver.job(STUBBORN, roles=roles, limits=limits, kubernetes={"claim": "none"})
        run = driver.start(folder, "-d").succeed()
        until_all_step(driver, run.name, 1, 2, PATIENCE)
        stop_delete.stop(api, Named(run.name))
        resume = f"`oarlock run --resume {run.name}`"
        for told in (f"is being stopped; {resume} resumes it then", "is not running: it was stopped"):
            done = driver.call("scale", run.name, "3")
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"oarlock: {run.name} {told}\n"
            for pod in api.all("Pod", Named(run.name).members):  # it has been stubborn for long enough
                api.delete("Pod", pod["metadata"]["name"], grace=0)
            assert driver.call("stop", run.name).returncode == 0


@only_in_soak
def test_what_never_formed_is_taken_back_and_the_training_goes_on(
    cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    """There are two nodes, and no two workers may be on one."""
    with driving(tmp_path, cluster.user, api) as driver:
        job = unused()
        apart = {"labelSelector": {"matchLabels": {JOB: job}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        folder = driver.job(
            STEPS,
            job,
            roles={"worker": {"replicas": 2, **SMALL}},
            limits={"restarts": 0},
            kubernetes={"claim": "none", "pod": {"affinity": affinity}},
        )
        run = driver.start(folder, "-d").succeed()
        until_all_step(driver, run.name, 1, 2, PATIENCE)
        growing = Started(run.name, driver, ["scale", run.name, "3"], driver.kubeconfig)
        try:
            until_pods(api, run.name, 3)
            done = driver.call("scale", run.name, "2")
            told = f"{run.name} runs with 2 workers in generation 1\n"
            assert (done.returncode, done.stdout) == (0, told), done.stderr
        finally:
            growing.process.kill()
            growing.end()
        until_pods(api, run.name, 2)
        happened = driver.call("events", "--json", run.name).stdout
        assert [json.loads(line)["kind"] for line in happened.splitlines()].count("generation") == 1


@only_in_soak
def test_a_failed_run_is_resumed_in_the_size_it_had(cluster: Cluster, api: Api, tmp_path: Path) -> None:
    """From its first moment: nobody has to look for the leader's wish to be fulfilled."""
    with driving(tmp_path, cluster.user, api) as driver:
        roles = {"worker": {"replicas": 2, **SMALL}}
        run = driver.start(driver.job(FAILS_AS_THREE, roles=roles, limits={"restarts": 0}), "-d").succeed()
        until_all_step(driver, run.name, 1, 2, PATIENCE)
        driver.call("scale", run.name, "3")
        assert driver.call("attach", run.name).returncode == 9
        done = driver.call("run", "--resume", run.name, "-d")
        assert done.returncode == 0, done.stderr
        assert parallelism(api, run.name) == {"lead": 1, "worker": 2}
        done = driver.call("attach", run.name)
        assert done.returncode == 0, done.stdout + done.stderr
        happened = map(json.loads, driver.call("events", "--json", run.name).stdout.splitlines())
        formed = [(one["generation"], len(one["tasks"])) for one in happened if one["kind"] == "generation"]
        assert formed == [(1, 2), (2, 3), (3, 3)]


def with_a_watcher(driver: Driver, run: Started, size: int) -> None:
    """No command is needed where somebody watches, and may have watched for hours."""
    watching = Started(run.name, driver, ["attach", run.name], driver.kubeconfig)
    record = RunFolder(Path(watching.env["OARLOCK_HOME"]) / "runs" / run.name)
    try:
        eventually(record.is_held, "somebody who watches")
        assert mortal(driver, -1, "scale", run.name, str(size)) == -signal.SIGKILL
        wanted = {"lead": 1, "worker": size - 1}
        eventually(lambda: parallelism(driver.api, run.name) == wanted, "repair by who watches")
    finally:
        watching.process.kill()
        watching.end()


def mortal(driver: Driver, calls: int, *words: str) -> int:
    """How the client ended that could make so many calls. It has a home of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MORTAL, str(calls), *words],
        env={**driver.env(driver.kubeconfig), "OARLOCK_HOME": str(driver.folder / "elsewhere")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def until_pods(api: Api, run: str, size: int) -> None:
    """As many as there are workers, and the Jobs of one each for the leader and all the others."""
    eventually(lambda: len(api.all("Pod", Named(run).members)) == size, f"{size} pods of {run}")
    assert parallelism(api, run) == {"lead": 1, "worker": size - 1}


def parallelism(api: Api, run: str) -> dict[str, int]:
    return {group: job["spec"]["parallelism"] for group, job in jobs_of(api, run).items()}


def steady(oarlock: Command, folder: Path, total: int) -> list[float]:
    """The losses of two workers on this machine that nobody disturbs."""
    done = oarlock("run", str(folder), str(total))
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"kept (.*)", done.stdout)
    assert kept, done.stdout
    losses: list[float] = json.loads(kept[1])["losses"]
    return losses
