"""`oarlock inspect` on a cluster: beside the claim while the leader writes to it, and gone afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, LEAD, ROLE, Object, selecting
from oarlock.engines.kubernetes.claims import claim_pod, claim_session
from oarlock.engines.kubernetes.claims.claim_pod import Purpose
from oarlock.engines.kubernetes.lifecycle import stop_delete, submit
from oarlock.errors import OarlockError
from oarlock.job import job_file
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT, started
from tests.support.kubernetes.driving import Named
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.terminals import Terminal
from tests.support.waiting import eventually

SHELL = Purpose("inspect", claim_session.IDLE)
# How many files there are, and how many once there are more; it does not wait for ever.
GROWING = """
pwd
count() { ls checkpoints | wc -l; }
before=$(count)
for _ in $(seq 300); do [ $(count) -gt $before ] && break; sleep 0.2; done
echo $before $(count)
exit 5
"""
# The leader writes a file every 0.2 s, for as long as it is told to.
WRITING = """
    import os, pathlib, time
    folder = pathlib.Path(os.environ["CHECKPOINT_DIR"])
    print("begun", flush=True)
    end = time.time() + float(os.environ["WAIT"])
    step = 0
    while step == 0 or time.time() < end:
        step += 1
        if os.environ["OARLOCK_RANK"] == "0":
            (folder / f"step-{step}").write_text("x")
        time.sleep(0.2)
"""


class Window(Terminal):
    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._mine, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_cooked(self) -> bool:
        return bool(termios.tcgetattr(self._mine)[3] & termios.ICANON)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspecting")


@pytest.fixture(autouse=True)
def home(place: Path, surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


@pytest.fixture(scope="module")
def training(place: Path, api: Api) -> Iterator[RunFolder]:
    yield from _run(place, api, "insp-live", workers=2, wait=600)


@pytest.fixture(scope="module")
def over(place: Path, api: Api) -> Iterator[RunFolder]:
    lead = "insp-over-lead"
    for run in _run(place, api, "insp-over", workers=1, wait=0.5):
        eventually(lambda: api.get("Job", lead)["status"].get("succeeded"), "end of the run")
        yield run


def _run(place: Path, api: Api, name: str, workers: int, wait: float, *more: str) -> Iterator[RunFolder]:
    folder = place / name
    folder.mkdir()
    write(folder / "train.py", WRITING)
    sets = [f"name={name}", *SMALL_SETTINGS, f"env.WAIT={wait}"]
    sets += [f"roles.worker.replicas={workers}", *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OARLOCK_HOME", str(place / "home"))
        run = submit.start(job_file.load("train.py", sets=sets, cwd=folder), name, api)
    try:
        eventually(lambda: _have_begun(api, name, workers), "begin of all workers")
        yield run
    finally:
        stop_delete.delete(api, Named(name), now=True, patience=300)
        stop_delete.delete_claims(api, stop_delete.claims_of(api, name), 60)


def _have_begun(api: Api, run: str, workers: int) -> bool:
    try:
        logs = [list(api.log(pod["metadata"]["name"])) for pod in api.all("Pod", f"{selecting(run)},{ROLE}")]
    except ApiError:
        return False
    return sum(any(b"begun" in line for line in log) for log in logs) == workers


def _leader(api: Api, run: str) -> Object:
    return api.all("Pod", f"{selecting(run)},{LEAD}=true")[0]


def _jobs(api: Api, run: str) -> list[str]:
    return [job["metadata"]["name"] for job in submit.jobs_of(api, Named(run))]


def _left(api: Api, run: str) -> list[str]:
    pods = api.all("Pod", f"{selecting(run)},{HELPER}")
    jobs = api.all("Job", HELPER)
    names = [one["metadata"]["name"] for one in (*pods, *jobs)]
    return [name for name in names if name.startswith(run)]


def _is_clean(api: Api, run: str) -> None:
    eventually(lambda: not _left(api, run), "end of the pod and its Job")


@only_in_soak
def test_it_shows_a_growing_folder_while_the_leader_writes_it(
    oarlock: Any, training: RunFolder, api: Api
) -> None:
    done = oarlock("inspect", training.name, "--", "sh", "-c", GROWING)
    assert done.returncode == 5, done.stderr
    folder, before, after = done.stdout.split()
    assert folder == f"/oarlock/store/runs/{training.name}"
    assert 0 < int(before) < int(after)
    _is_clean(api, training.name)


def test_it_cannot_write_unless_it_is_asked_for(oarlock: Any, training: RunFolder) -> None:
    done = oarlock("inspect", training.name, "--json", "--", "touch", "checkpoints/mine")
    told = json.loads(done.stdout)
    assert (set(told), told["stdout"]) == ({"code", "stdout", "stderr"}, "")
    assert done.returncode == told["code"] != 0
    assert "Read-only file system" in told["stderr"]
    words = ("sh", "-c", "touch checkpoints/mine && rm checkpoints/mine && touch ~/notes")
    assert oarlock("inspect", training.name, "--write", "--", *words).returncode == 0


def test_what_the_pod_is_like(training: RunFolder, api: Api) -> None:
    lead = api.get("Job", f"{training.name}-lead")
    with claim_session.beside(api, training, SHELL) as name:
        pod = api.get("Pod", name)
        job = api.get("Job", pod["metadata"]["ownerReferences"][0]["name"])
        assert pod["spec"]["nodeName"] == _leader(api, training.name)["spec"]["nodeName"]
        labels = pod["metadata"]["labels"]
        assert labels["oarlock.dev/run"] == training.name
        assert not {ROLE, LEAD} & labels.keys()
        service = api.get("Service", training.name)["spec"]["selector"]
        assert not service.items() <= labels.items()  # or members would be led to it
        policy = api.get("NetworkPolicy", training.name)["spec"]["podSelector"]["matchLabels"]
        assert policy.items() <= labels.items()  # nobody from outside reaches it
        assert job["metadata"]["ownerReferences"][0]["uid"] == lead["metadata"]["uid"]
        assert 0 < job["spec"]["activeDeadlineSeconds"] <= claim_session.LEASE
        assert job["metadata"]["name"] not in _jobs(api, training.name)  # `stop` would suspend it
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] is True
    _is_clean(api, training.name)


def test_the_run_does_not_take_it_for_a_member(oarlock: Any, training: RunFolder, api: Api) -> None:
    before = json.loads(oarlock("status", "--json", training.name).stdout)
    shell, option, script = claim_session.IDLE
    forging = Purpose("inspect", (shell, option, f"echo 'worker-1/1 | forged'; {script}"))
    with claim_session.beside(api, training, forging) as pod:
        eventually(lambda: any(b"forged" in line for line in api.log(pod)), "a line in its log")
        state = json.loads(oarlock("status", "--json", training.name).stdout)
        said = oarlock("logs", training.name).stdout
    assert [task["name"] for task in state["tasks"]] == ["worker-0", "worker-1"]
    assert (state["generation"], state["problem"]) == (before["generation"], None)
    assert "worker-1 | begun" in said
    assert "forged" not in said


def until_size(size: str) -> str:
    """For a shell: its node may set the size only after it has handed on what was typed."""
    return f"while [ \"$(stty size)\" != '{size}' ]; do sleep 0.1; done; "


def test_a_terminal_is_passed_through(training: RunFolder, api: Api, tmp_path: Path) -> None:
    terminal = Window([str(SCRIPT), "inspect", training.name], tmp_path, rows=24, columns=100)
    try:
        terminal.until("read-only; `exit` ends the shell")
        terminal.type(until_size("24 100") + "echo $((6 * 7))-$TERM\r")
        terminal.until("42-xterm-256color")
        terminal.resize(33, 77)
        terminal.type(until_size("33 77") + "echo re''sized\r")
        terminal.until("resized")
        terminal.type("sh -c 'echo sl''eeps; exec sleep 100' || echo inter''rupted $?\r")
        terminal.until("sleeps\r\n")
        terminal.type("\x03")  # is the shell's, not ours
        terminal.type("exit 3\r")
        assert terminal.end() == 3
        assert terminal.is_cooked()
    finally:
        terminal.close()
    _is_clean(api, training.name)


def test_what_is_piped_in_is_for_the_shell(oarlock: Any, training: RunFolder) -> None:
    done = oarlock("inspect", training.name, input="cat id | wc -c\nexit 4\n")
    assert (done.returncode, done.stdout.strip()) == (4, "16"), done.stderr


def test_a_client_that_is_asked_to_leave_takes_the_pod_along(training: RunFolder, api: Api) -> None:
    with started(SCRIPT, "inspect", training.name, "--", "sh", "-c", "echo in; sleep 100") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "in\n"
        client.send_signal(signal.SIGTERM)
        assert client.wait(300) == 143
    _is_clean(api, training.name)


@only_in_soak
def test_the_pod_outlives_a_killed_client_only_by_its_deadline(training: RunFolder, api: Api) -> None:
    """As long as the client lives, it pushes the deadline on."""
    lease = 10
    script = f"""
        import threading
        from oarlock.engines.kubernetes.api.client import Api
        from oarlock.engines.kubernetes.claims import claim_session
        from oarlock.engines.kubernetes.claims.claim_pod import Purpose
        from oarlock.records import runs
        api, purpose = Api(), Purpose("inspect", claim_session.IDLE)
        with claim_session.beside(api, runs.find({training.name!r}), purpose, lease={lease}) as pod:
            print(pod, flush=True)
            threading.Event().wait()
    """
    path = Path(os.environ["OARLOCK_HOME"]) / "looking.py"
    write(path, script)
    with started(sys.executable, path) as client:
        assert client.stdout is not None
        pod = client.stdout.readline().strip()
        job = api.get("Pod", pod)["metadata"]["ownerReferences"][0]["name"]

        def deadline() -> int:
            return int(api.get("Job", job)["spec"]["activeDeadlineSeconds"])

        # The client adds a lease to the Job's age, so by then the first deadline has passed.
        eventually(lambda: deadline() > 2 * lease, "a deadline beyond the first lease")
        claim_session.require(api, pod)
        client.kill()
    eventually(lambda: not _left(api, training.name), "end of what a killed client left")


@only_in_soak
def test_after_the_end(oarlock: Any, over: RunFolder, api: Api) -> None:
    done = oarlock("inspect", "--", "ls", "checkpoints")  # the latest
    assert (done.returncode, done.stdout.split()[0]) == (0, "step-1"), done.stderr
    _is_clean(api, over.name)


def test_delete_finds_an_open_one(over: RunFolder, api: Api) -> None:
    with claim_session.beside(api, over, SHELL):
        stop_delete.delete(api, Named(over.name), now=True, patience=300)
        _is_clean(api, over.name)


@only_in_soak
def test_why_not_is_one_line(
    oarlock: Any, training: RunFolder, api: Api, cluster: Any, monkeypatch: Any
) -> None:
    done = oarlock("inspect", training.name, "--image", "nosuch:1", "--", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("oarlock: the pod beside its claim does not start: the registry of image")
    _is_clean(api, training.name)
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "view.kubeconfig"))
    done = oarlock("inspect", training.name, "--", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "you may not create pods in namespace team" in done.stderr


def test_a_job_without_a_claim_has_nothing_to_look_at(training: RunFolder, api: Api) -> None:
    """As the leader's template says it; nothing is created."""
    lead = api.get("Job", f"{training.name}-lead")
    for volume in lead["spec"]["template"]["spec"]["volumes"]:
        if volume.pop("persistentVolumeClaim", None):
            volume["emptyDir"] = {}

    class Without:
        def find(self, *_: str) -> Object:
            return lead

    with pytest.raises(OarlockError, match="its job has no claim"):
        claim_pod.prepare(Without(), training, SHELL)  # type: ignore[arg-type]


def test_a_claim_for_one_pod_only_is_told(oarlock: Any, place: Path, api: Api) -> None:
    access = ("kubernetes.claim.access=ReadWriteOncePod", "kubernetes.claim.size=10Mi")
    for run in _run(place, api, "insp-alone", 1, 600, *access):
        done = oarlock("inspect", run.name, "--", "true")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert (
            f"only one pod may mount claim {run.name} (ReadWriteOncePod), and {run.name}-lead" in done.stderr
        )
        assert f"`oarlock exec {run.name}`" in done.stderr
        assert not _left(api, run.name)
