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

from oarlock.engines import recorded_board
from oarlock.engines.kubernetes.api import port_forward
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, Identity, selecting
from oarlock.engines.kubernetes.claims import board_objects, claim_pod, claim_session
from oarlock.engines.kubernetes.claims.claim_pod import Purpose
from oarlock.engines.kubernetes.follow.mirror import Mirror
from oarlock.engines.kubernetes.lifecycle import identity, stop_delete, submit
from oarlock.engines.shared import tensorboard_process
from oarlock.job import job_file
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT, started
from tests.support.event_files import curve_at, event_file, runs_at, tags_at
from tests.support.kubernetes.driving import Named
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.ports import free_ports
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

PROGRAM = """
    import itertools, os, shutil, time
    import oarlock
    shutil.copy("written", os.path.join(os.environ["LOG_DIR"], "events.out.tfevents.1.host"))
    for step in itertools.count(1):
        oarlock.current().report(step=step, loss=1.0 / step)
        time.sleep(0.5)
"""
SHOWN = {"scalar-loss", "loss", "oarlock/goodput"}
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
def sent(place: Path, api: Api) -> Iterator[RunFolder]:
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
        stop_delete.delete(api, Named(name), now=True, patience=300)
        stop_delete.delete_claims(api, stop_delete.claims_of(api, name), 60)


@pytest.fixture
def run(sent: RunFolder, home: Path, api: Api) -> RunFolder:
    """Whose leading agent has told that the program writes files."""
    eventually(lambda: _has_told(sent, api), "what the leading agent says of its files")
    return sent


def _has_told(run: RunFolder, api: Api) -> bool:
    Mirror(run, api).catch_up(with_logs=False)
    return recorded_board.has_own_files(run)


def _left(api: Api, run: str) -> list[str]:
    found = (*api.all("Pod", f"{selecting(run)},{HELPER}"), *api.all("Job", HELPER))
    return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(run)]


@only_in_soak
def test_it_answers_on_its_port_and_takes_its_pod_along(run: RunFolder, api: Api) -> None:
    with started(SCRIPT, "tensorboard", run.name, "--json") as client:
        assert client.stdout is not None
        url = json.loads(client.stdout.readline())["url"]
        eventually(lambda: tags_at(url) >= SHOWN, "what the program wrote and what it reported")
        [pod] = api.all("Pod", f"{selecting(run.name)},{HELPER}=tensorboard")
        assert pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] is True
        found: list[bool] = []
        asking = [threading.Thread(target=lambda: found.append(tags_at(url) >= SHOWN)) for _ in range(12)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(300)
        assert found == [True] * 12
        client.send_signal(signal.SIGINT)
        assert client.wait(300) == 0
    assert not tensorboard_process.answers(int(url.rpartition(":")[2].rstrip("/")))
    eventually(lambda: not _left(api, run.name), "end of the pod")


@only_in_soak
def test_a_pod_that_is_taken_away_ends_it(run: RunFolder, api: Api) -> None:
    with started(SCRIPT, "tensorboard", run.name) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stdout.readline().startswith(f"{run.name}: http://127.0.0.1:")
        for job in api.all("Job", f"{HELPER}=tensorboard"):
            if job["metadata"]["name"].startswith(run.name):
                api.delete("Job", job["metadata"]["name"])
        assert client.wait(300) == 1
        said = client.stderr.read()
    assert len(said.splitlines()) == 1
    assert said.startswith("oarlock: the pod beside its claim ")


def test_an_image_without_it_is_told(run: RunFolder, api: Api) -> None:
    words = [sys.executable, "-c", WITHOUT_IT, "tensorboard", run.name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "its image has no TensorBoard; --image names one that has" in done.stderr
    eventually(lambda: not _left(api, run.name), "end of the pod")


@only_in_soak
def test_several_runs_are_shown_from_their_records(run: RunFolder, place: Path) -> None:
    write(place / "here.py", "import oarlock; oarlock.current().report(step=3, loss=0.5)")
    done = subprocess.run([SCRIPT, "run", "--name", "here", "here.py"], cwd=place, timeout=300)
    assert done.returncode == 0
    with started(SCRIPT, "tensorboard", "--json", "here", run.name) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        url = json.loads(client.stdout.readline())["url"]
        eventually(
            lambda: curve_at(url, "here/training", "loss") == [(3, 0.5)], "the run on this machine", 60
        )
        theirs = f"{run.name}/training"
        eventually(lambda: curve_at(url, theirs, "loss"), "the run on the cluster")
        known = curve_at(url, theirs, "loss")[-1][0]
        eventually(lambda: curve_at(url, theirs, "loss")[-1][0] > known, "its next reports")
        client.send_signal(signal.SIGINT)
        assert client.wait(300) == 0
        assert f"`oarlock tensorboard {run.name}` alone shows it" in client.stderr.read()


def _oarlock(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done


def _standing(api: Api, run: Identity) -> list[str]:
    kinds = (*board_objects.KINDS, "Pod")
    return [kind for kind in kinds for _ in api.all(kind, board_objects.selector(run))]


def test_one_that_is_deployed_stands_until_it_is_deleted(run: RunFolder, api: Api) -> None:
    made = json.loads(
        _oarlock("tensorboard", run.name, "--deploy", "--ingress", "b.example", "--json").stdout
    )
    forward = f"kubectl -n {api.namespace} port-forward service/{run.name}-tensorboard 6006"
    assert made == {"url": "http://b.example/", "new": True, "forward": forward}
    assert _standing(api, identity.of(run)) == ["Ingress", "Service", "Deployment", "Pod"]
    [pod] = api.all("Pod", board_objects.selector(identity.of(run)))
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] is True
    [leader] = api.all("Pod", identity.of(run).leading)
    assert pod["spec"]["nodeName"] == leader["spec"]["nodeName"]
    [backend] = api.get("Service", f"{run.name}-tensorboard")["spec"]["ports"]
    assert backend["port"] == 6006
    with (
        tensorboard_process.listener(free_ports(1)[0]) as here,
        port_forward.forwarded(api, pod["metadata"]["name"], 6006, here),
    ):
        url = f"http://127.0.0.1:{here.getsockname()[1]}/"
        eventually(lambda: tags_at(url) >= SHOWN, "what the program wrote and what it reported")
        assert runs_at(url).keys() == {".", "training"}
    again = _oarlock("tensorboard", run.name, "--deploy").stdout
    assert again.splitlines()[0] == f"{run.name}: TensorBoard is already deployed: http://b.example/"
    assert _oarlock("tensorboard", run.name, "--delete").stdout == f"deleted the TensorBoard of {run.name}\n"
    eventually(lambda: _standing(api, identity.of(run)) == [], "end of all its objects")
    assert _oarlock("tensorboard", run.name, "--delete").stdout == f"{run.name} has no deployed TensorBoard\n"


@only_in_soak
def test_an_image_that_cannot_be_had_leaves_nothing(run: RunFolder, api: Api) -> None:
    words = [str(SCRIPT), "tensorboard", run.name, "--deploy", "--image", "registry.example/no/such:1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("oarlock: its TensorBoard does not start: ")
    eventually(lambda: _standing(api, identity.of(run)) == [], "end of all its objects")


def test_deleting_the_run_deletes_it_too(run: RunFolder, api: Api) -> None:
    who = identity.of(run)
    pod = claim_pod.prepare(api, run, Purpose("tensorboard", claim_session.IDLE)).pod
    api.create(board_objects.deployment(who, run.state().job, pod, {}, api.user))
    api.create(board_objects.service(who, run.state().job, api.user))
    made = _oarlock("tensorboard", run.name, "--deploy").stdout  # it stands, whether it answers or not
    assert f"already deployed: http://{run.name}-tensorboard.{api.namespace}.svc:6006/" in made
    done = _oarlock("delete", "--force", run.name)
    assert done.stderr.splitlines()[0] == f"deleted the TensorBoard of {run.name}"
    eventually(lambda: _standing(api, who) == [], "end of all its objects")
