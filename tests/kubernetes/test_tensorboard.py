"""`oarlock tensorboard` of a run on a cluster: a pod beside its claim, and a port here that leads to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.claims.claim_pod import HELPER
from oarlock.engines.kubernetes.lifecycle import stop_delete, submit
from oarlock.engines.shared import tensorboard_process
from oarlock.job import job_file
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT, started
from tests.support.event_files import event_file, tags_at
from tests.support.kubernetes.driving import Named
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.small_programs import write
from tests.support.waiting import eventually

PROGRAM = """
    import os, shutil, time
    shutil.copy("written", os.path.join(os.environ["LOG_DIR"], "events.out.tfevents.1.host"))
    while True:
        time.sleep(0.1)
"""
# The command line itself, but for an interpreter in the pod that has no packages.
WITHOUT_IT = """
from oarlock.cli import main
from oarlock.engines.shared import tensorboard_process as board
words = board.words
board.words = lambda python, *rest: [python, "-I", "-S", *words(python, *rest)[1:]]
main()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boards")


@pytest.fixture(autouse=True)
def home(place: Path, surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


@pytest.fixture(scope="module")
def run(place: Path, api: Api) -> Iterator[RunFolder]:
    name = "insp-board"
    folder = place / "program"
    folder.mkdir()
    write(folder / "train.py", PROGRAM)
    (folder / "written").write_bytes(event_file("scalar-loss"))
    sets = [f"name={name}", *SMALL_SETTINGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OARLOCK_HOME", str(place / "home"))
        run = submit.start(job_file.load("train.py", sets=sets, cwd=folder), name, api)
    try:
        yield run
    finally:
        stop_delete.delete(api, Named(name), now=True, patience=60)
        stop_delete.delete_claims(api, stop_delete.claims_of(api, name), 60)


def _left(api: Api, run: str) -> list[str]:
    found = (*api.all("Pod", f"{selecting(run)},{HELPER}"), *api.all("Job", HELPER))
    return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(run)]


def test_it_answers_on_its_port_and_takes_its_pod_along(run: RunFolder, api: Api) -> None:
    with started(SCRIPT, "tensorboard", run.name, "--json") as client:
        assert client.stdout is not None
        url = json.loads(client.stdout.readline())["url"]
        eventually(lambda: tags_at(url) == {"scalar-loss"}, "the scalar that the program wrote")
        [pod] = api.all("Pod", f"{selecting(run.name)},{HELPER}=tensorboard")
        assert pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] is True
        found: list[set[str]] = []
        asking = [threading.Thread(target=lambda: found.append(tags_at(url))) for _ in range(12)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(60)
        assert found == [{"scalar-loss"}] * 12
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    assert not tensorboard_process.answers(int(url.rpartition(":")[2].rstrip("/")))
    eventually(lambda: not _left(api, run.name), "end of the pod")


def test_a_pod_that_is_taken_away_ends_it(run: RunFolder, api: Api) -> None:
    with started(SCRIPT, "tensorboard", run.name) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stdout.readline().startswith(f"{run.name}: http://127.0.0.1:")
        for job in api.all("Job", f"{HELPER}=tensorboard"):
            if job["metadata"]["name"].startswith(run.name):
                api.delete("Job", job["metadata"]["name"])
        assert client.wait(60) == 1
        said = client.stderr.read()
    assert len(said.splitlines()) == 1
    assert said.startswith("oarlock: the pod beside its claim ")


def test_an_image_without_it_is_told(run: RunFolder, api: Api) -> None:
    words = [sys.executable, "-c", WITHOUT_IT, "tensorboard", run.name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "its image has no TensorBoard; --image names one that has" in done.stderr
    eventually(lambda: not _left(api, run.name), "end of the pod")
