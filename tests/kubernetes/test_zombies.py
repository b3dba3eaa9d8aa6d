"""What Kubernetes has given up may live on: it never gets in the way of those who took its place."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from tests.support.clusters import Cluster
from tests.support.commands import SCRIPT, Command
from tests.support.kubernetes.bookkeeping import SUMS, Books
from tests.support.kubernetes.causes import broken
from tests.support.kubernetes.driving import written
from tests.support.kubernetes.small import start_detached
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

SLOW_TO_LEAVE = """
import signal, sys, time, oarlock
me = oarlock.current()
done = me.checkpoints / "done"
print("generation", me.generation, "finds it saved" if done.exists() else "finds nothing")
def leave(*_):
    time.sleep(4)
    done.touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
while not done.exists():
    me.report(step=1)
    time.sleep(0.1)
"""


def watch(stack: ExitStack, name: str, folder: Path) -> None:
    """Somebody who looks, so that what is lost is replaced at once."""
    with (folder / f"{name}.log").open("wb") as log:
        words = [str(SCRIPT), "logs", "-f", name]
        client = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(client.wait)
        stack.callback(client.kill)
        eventually(lambda: os.fstat(log.fileno()).st_size, f"lines of {name}")


def until_more_steps(books: Books, generation: int) -> None:
    steps = books.steps(generation)
    eventually(lambda: books.steps(generation) > steps, f"more steps in generation {generation}")


@pytest.mark.alone
def test_a_node_that_comes_back_finds_its_places_taken(
    oarlock: Command, api: Api, admin: Api, cluster: Cluster, tmp_path: Path, ended: list[str]
) -> None:
    """A leader who needs nobody trains on while it is cut off, with the volume in its hands: once another
    leads, nothing of it is committed. Workers come back as older ones, also when their containers start
    again, and are refused."""
    names = {"zombie-leader": 1, "zombie-workers": 4}
    ended.extend(names)
    for name, workers in names.items():
        program = written(tmp_path / name, SUMS)
        settings = [f"name={name}"]
        start_detached(oarlock, name, program, "1000000", "10", workers=workers, settings=settings)
    books = {name: Books(admin, name, name) for name in names}
    for name, of_run in books.items():
        eventually(partial(of_run.is_stepping, 1), f"the first steps of {name}")
    leader = api.all("Pod", f"{selecting('zombie-leader')},{LEAD}=true")[0]
    node = leader["spec"]["nodeName"].rpartition("-")[2]
    with ExitStack() as stack:
        for name in names:
            watch(stack, name, tmp_path)
        with broken(cluster, ["cut-node", node], ["join-node", node]):
            cut_off = time.time()
            for name, of_run in books.items():
                eventually(partial(of_run.is_stepping, 2), f"steps of {name} without it")
            taken_over = time.time()
            eventually(lambda: time.time() > taken_over + 5, "what else it does while it is away")
        back = time.time()
        eventually(lambda: time.time() > back + 10, "what it does when it is back")
    for name, of_run in books.items():
        assert of_run.generation == 2, (name, of_run.since(taken_over))
        of_run.audit()
        until_more_steps(of_run, 2)
    # It was alive, and at work, for as long as it led; it saves every few steps.
    mine = [one.manifest["saved"] for one in books["zombie-leader"].checkpoints if one.generation == 1]
    assert max(mine) > cut_off


@only_in_soak
def test_a_leader_that_is_saving_is_waited_for(
    oarlock: Command, api: Api, admin: Api, tmp_path: Path, ended: list[str]
) -> None:
    """Though the client has its place filled at once."""
    name = "zombie-saving"
    ended.append(name)
    program = written(tmp_path / name, SLOW_TO_LEAVE)
    start_detached(oarlock, name, program, workers=1, settings=[f"name={name}"])
    books = Books(admin, name, name)
    eventually(lambda: books.is_stepping(1), "the first step")
    with ExitStack() as stack:
        watch(stack, name, tmp_path)
        api.delete("Pod", api.all("Pod", f"{selecting(name)},{LEAD}=true")[0]["metadata"]["name"])
        eventually(lambda: books.events[-1]["kind"] == "end", "the end of the run")
    assert [text for _, text in books.said(2)] == ["generation 2 finds it saved"]
