"""Who may do what: `edit` can do everything, `view` is told exactly what it lacks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.records import runs
from tests.support.clusters import Cluster, as_user
from tests.support.commands import Command
from tests.support.kubernetes.driving import Named, state_of, written
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.waiting import eventually

PAIR = (*SMALL_WORDS, "-n", "2")

STEPS = """
import time, oarlock
for number in range(10**6):
    oarlock.current().report(step=number + 1)
    print("line", number)
    time.sleep(0.1)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "program", STEPS)


def test_view_is_told_which_permission_is_missing(
    oarlock: Command, api: Api, cluster: Cluster, program: Path, tmp_path: Path
) -> None:
    viewer = as_user(cluster, "view", tmp_path / "viewer")
    done = oarlock("run", "--on", "kubernetes", "--name", "live-viewed", str(program), env=viewer)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("oarlock: you may not create pods in namespace team")
    assert "role edit" in done.stderr
    assert stop_delete.remaining(api, Named("live-viewed")) == []
    assert not any((tmp_path / "viewer" / "runs").iterdir())


def test_view_can_watch_a_run_but_not_touch_it(
    oarlock: Command, api: Api, cluster: Cluster, program: Path, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-watched")
    assert (
        oarlock("run", "--on", "kubernetes", "-d", "--name", "live-watched", *PAIR, str(program)).returncode
        == 0
    )
    viewer = as_user(cluster, "view", tmp_path / "viewer")
    eventually(lambda: state_of("live-watched").state == "running", "running tasks")
    eventually(
        lambda: "worker-1 | line 3" in oarlock("logs", "live-watched", env=viewer).stdout,
        "lines of both workers",
        every=1.0,  # a client costs 0.6 s of a processor
    )
    assert "running" in oarlock("status", "live-watched", env=viewer).stdout
    for verb, lacking in (("stop", "patch jobs.batch"), ("delete", "delete")):
        done = oarlock(verb, *(("--force",) if verb == "delete" else ()), "live-watched", env=viewer)
        assert done.returncode == 1, done.stdout
        assert f"you may not {lacking}" in done.stderr
    done = oarlock("stacks", "live-watched", env=viewer)
    assert done.returncode == 1
    assert "pods/exec" in done.stderr
    assert len(api.all("Pod", selecting("live-watched"))) == 2


def test_another_editor_takes_a_run_over_from_another_machine(
    oarlock: Command, api: Api, cluster: Cluster, program: Path, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-shared")
    assert (
        oarlock("run", "--on", "kubernetes", "-d", "--name", "live-shared", *PAIR, str(program)).returncode
        == 0
    )
    other = as_user(cluster, "edit2", tmp_path / "other")
    assert "live-shared" in oarlock("ps", "--refresh", env=other).stderr
    done = oarlock("stop", "--now", "live-shared", env=other)
    assert done.returncode == 0, done.stderr
    assert oarlock("status", "live-shared").stdout.startswith("live-shared stopped")
    done = oarlock("delete", "--volumes", "live-shared", env=other)
    assert (done.returncode, f"kept: claim {program.stem}" in done.stderr) == (0, True), done.stderr
    assert not api.all("Job", selecting("live-shared"))
    api.delete("PersistentVolumeClaim", program.stem)  # which is for its owner to do
    gone = oarlock("status", "live-shared")
    assert runs.find("live-shared").state().state == "stopped", gone.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"KUBECONFIG": "/nowhere/config"}, "KUBECONFIG"),
        ({"token": "wrong"}, "credentials"),
        ({"server": "https://127.0.0.1:1"}, "API server"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(
    change: dict[str, str], told: str, oarlock: Command, cluster: Cluster, program: Path, tmp_path: Path
) -> None:
    config = json.loads(cluster.user.read_text())
    if "token" in change:
        config["users"][0]["user"]["token"] = change["token"]
    if "server" in change:
        config["clusters"][0]["cluster"]["server"] = change["server"]
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    env = {**os.environ, "KUBECONFIG": change.get("KUBECONFIG", str(path))}
    done = oarlock("run", "--on", "kubernetes", str(program), env=env)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert told in done.stderr
    assert not done.stdout
