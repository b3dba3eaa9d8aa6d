"""`oarlock pull`, and `exec` below it: whole folders or none, from a run that is under way or long over."""

from __future__ import annotations

import io
import json
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.api.api_error import ApiError
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER
from oarlock.engines.kubernetes.claims import claim_pod
from oarlock.engines.kubernetes.lifecycle import submit
from oarlock.job import job_file
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.kubernetes.small import SMALL_SETTINGS
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.terminals import Terminal
from tests.support.waiting import eventually

KINDS = ("Job", "Pod", "Service", "ConfigMap", "Secret", "NetworkPolicy")
SHAPE = {
    *("run", "folder", "from", "folders", "files", "bytes", "seconds"),
    *("absent", "elsewhere", "changed", "skipped"),
}
SIZE = 5_000_000
# Leaves a model with all that a folder can have; then waits, if it is told to.
PROGRAM = f"""
    import os, random, time
    import oarlock
    me = oarlock.current()
    me.report(step=1, total=1, loss=1.0)
    if me.is_chief:
        (me.model / "weights").write_bytes(random.Random(1).randbytes({SIZE}))
        (me.model / "deep" / "er").mkdir(parents=True)
        (me.model / "deep" / "er" / "näme with space").write_text("x")
        (me.model / "deep" / "latest").symlink_to(me.model / "weights")
        (me.model / "outside").symlink_to("/etc")
        (me.model / "weights").chmod(0o755)
    print("saved", flush=True)
    end = time.time() + float(os.environ.get("WAIT", "0"))
    while time.time() < end:
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pulling")


def _start(place: Path, api: Api, name: str, **env: str) -> RunFolder:
    folder = place / name
    folder.mkdir()
    write(folder / "train.py", PROGRAM)
    sets = [f"name={name}", *SMALL_SETTINGS]
    sets += [f"env.{key}={value}" for key, value in env.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OARLOCK_HOME", str(place / "home"))
        return submit.start(job_file.load("train.py", sets=sets, cwd=folder), name, api)


def _remove(api: Api, name: str) -> None:
    for kind in KINDS:
        api.delete_all(kind, f"oarlock.dev/run={name}")
    api.delete("PersistentVolumeClaim", name)


@pytest.fixture(scope="module")
def ended(place: Path, api: Api) -> Iterator[RunFolder]:
    """A run that is over, its Jobs still there."""
    run = _start(place, api, "tool-ended")
    eventually(lambda: _job(api, run).get("status", {}).get("succeeded"), "end")
    yield run
    _remove(api, run.name)


@pytest.fixture(scope="module")
def running(place: Path, api: Api) -> Iterator[RunFolder]:
    """A run that goes on, its model saved."""
    run = _start(place, api, "tool-running", WAIT="600")
    eventually(lambda: _says(api, run, "saved"), "saved model")
    yield run
    _remove(api, run.name)


@pytest.fixture(autouse=True)
def home(place: Path, surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


def _copied(run: RunFolder, home: Path, server: str) -> Path:
    """Records with one that says it was sent to that server: by another address no verb goes there."""
    copy = home / "runs" / run.name
    shutil.copytree(run.path, copy)
    place = json.loads((copy / "cluster.json").read_text())
    (copy / "cluster.json").write_text(json.dumps({**place, "server": server}))
    return home


def _job(api: Api, run: RunFolder) -> dict[str, Any]:
    return api.find("Job", f"{run.name}-lead") or {}


def _leader(api: Api, run: RunFolder) -> str:
    found = api.all("Pod", f"oarlock.dev/run={run.name},oarlock.dev/lead=true")
    return str(found[0]["metadata"]["name"])


def _says(api: Api, run: RunFolder, text: str) -> bool:
    try:
        return any(text.encode() in line for line in api.log(_leader(api, run)))
    except (ApiError, IndexError):
        return False


def _helpers(api: Api, run: RunFolder) -> list[dict[str, Any]]:
    return api.all("Pod", f"oarlock.dev/run={run.name},{HELPER}")


def _check_model(model: Path) -> None:
    assert (model / "weights").read_bytes() == random.Random(1).randbytes(SIZE)
    assert (model / "weights").stat().st_mode & 0o777 == 0o755
    assert (model / "deep" / "er" / "näme with space").read_text() == "x"
    assert (model / "deep" / "latest").readlink() == Path("../weights")
    assert not (model / "outside").is_symlink()


def test_from_a_run_under_way_through_its_leader(oarlock: Any, running: RunFolder, api: Api) -> None:
    done = oarlock("pull", running.name, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == SHAPE
    assert told["from"] == _leader(api, running)
    assert told["folders"] == {kind: str(running.path / kind) for kind in ("model", "leader")}
    assert told["bytes"] > SIZE
    assert told["skipped"] == ["model/outside"]
    _check_model(running.path / "model")
    assert '"kind":"run"' in (running.path / "leader" / "events.jsonl").read_text().replace(" ", "")
    assert not _helpers(api, running)


def test_after_its_end_through_a_pod_that_is_gone_afterwards(
    oarlock: Any, ended: RunFolder, api: Api, tmp_path: Path
) -> None:
    done = oarlock("pull", ended.name, "--what", "all", "--to", "brought")
    assert done.returncode == 0, done.stderr
    _check_model(tmp_path / "brought" / "model")
    assert json.loads((tmp_path / "brought" / "leader" / "result.json").read_text())["state"] == "succeeded"
    assert f"from pod {ended.name}-pull-" in done.stdout
    assert "checkpoints  nothing" in done.stdout
    brought = sorted(path.name for path in (tmp_path / "brought").iterdir())
    assert brought == ["leader", "model", "tensorboard"]
    eventually(lambda: not _helpers(api, ended), "end of the pod")


def test_what_the_pod_is_like(ended: RunFolder, api: Api) -> None:
    with claim_pod.mounted(api, ended) as name:
        pod = api.get("Pod", name)
        code, _, said = pod_exec.run(api, name, ["touch", f"/oarlock/store/runs/{ended.name}/model/mine"])
    assert code != 0
    assert b"Read-only" in said
    assert pod["metadata"]["labels"]["oarlock.dev/run"] == ended.name
    assert "oarlock.dev/lead" not in pod["metadata"]["labels"]  # or the Service would lead to it
    assert pod["metadata"]["ownerReferences"][0]["uid"] == _job(api, ended)["metadata"]["uid"]
    spec = pod["spec"]
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["automountServiceAccountToken"] is False
    assert (
        spec["containers"][0]["image"]
        == _job(api, ended)["spec"]["template"]["spec"]["containers"][0]["image"]
    )


def test_the_pod_goes_whatever_happens(ended: RunFolder, api: Api) -> None:
    with pytest.raises(ZeroDivisionError), claim_pod.mounted(api, ended):
        raise ZeroDivisionError
    eventually(lambda: not _helpers(api, ended), "end of the pod")


def test_what_is_there_is_replaced_only_where_it_is_ours_or_told_to(
    oarlock: Any, running: RunFolder, tmp_path: Path
) -> None:
    mine = tmp_path / "mine" / "model" / "own"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    words = ("pull", running.name, "--what", "model", "--to", "mine")
    done = oarlock(*words)
    assert done.returncode == 1
    assert "mine/model is there already: choose another --to, or --force to replace it" in done.stderr
    assert mine.read_text() == "precious"
    assert oarlock(*words, "--force").returncode == 0
    assert not mine.exists()
    _check_model(tmp_path / "mine" / "model")
    for _ in range(2):
        assert oarlock("pull", running.name, "--what", "model").returncode == 0
    assert not list(running.path.glob(".pull-*"))


def test_progress_is_one_line_of_a_terminal_and_leaves_it(running: RunFolder, tmp_path: Path) -> None:
    terminal = Terminal([str(SCRIPT), "pull", running.name, "--what", "model", "--to", "seen"], tmp_path)
    try:
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert "\rwaiting for a pod" in terminal.shown
    assert " of 5.0 MB" in terminal.shown
    left = [line.rpartition("\r")[2] for line in terminal.shown.replace("\r\n", "\n").split("\n")]
    assert left[0].startswith("model ")


def test_what_there_is_not_is_told(oarlock: Any, running: RunFolder, tmp_path: Path) -> None:
    done = oarlock("pull", running.name, "--what", "checkpoints", "--to", "brought")
    assert done.returncode == 1
    assert f"nothing: {running.name} has not written any" in done.stdout
    assert not (tmp_path / "brought" / "checkpoints").exists()


@only_in_soak
def test_a_viewer_is_told_what_is_missing(
    oarlock: Any, running: RunFolder, ended: RunFolder, cluster: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "view.kubeconfig"))
    for run, lacking in ((running, "get pods/exec"), (ended, "create pods")):
        done = oarlock("pull", run.name, "--to", "brought")
        assert done.returncode == 1
        assert f"you may not {lacking} in namespace team" in done.stderr
        assert len(done.stderr.splitlines()) <= 2
    assert not (tmp_path / "brought").exists()


def test_a_pull_that_is_cut_leaves_nothing_and_says_so(
    oarlock: Any, running: RunFolder, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _cut_after(SIZE // 2, "10.240.0.1", 6443) as port:
        text = cluster.user.read_text().replace("https://10.240.0.1:6443", f"https://127.0.0.1:{port}")
        (tmp_path / "kubeconfig").write_text(text)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        here = _copied(running, tmp_path / "home", f"https://127.0.0.1:{port}")
        monkeypatch.setenv("OARLOCK_HOME", str(here))
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "kept").write_text("kept")
        for folder in ("new", "old"):
            done = oarlock("pull", running.name, "--to", folder)
            assert done.returncode == 1
            assert "the pull was cut: " in done.stderr
            assert "was changed, try again" in done.stderr
            assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["kept"]


@contextmanager
def _cut_after(count: int, host: str, port: int) -> Iterator[int]:
    """A way to the API server that breaks each time it has brought that many bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket, most: float) -> None:
        try:
            while most > 0 and (data := source.recv(1 << 16)):
                most -= len(data)
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with closing(one):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def serve() -> None:
        while True:
            try:
                ours, _ = listener.accept()
            except OSError:
                return
            theirs = socket.create_connection((host, port))
            for arguments in ((ours, theirs, float("inf")), (theirs, ours, count)):
                threading.Thread(target=carry, args=arguments, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@only_in_soak
def test_a_run_that_the_cluster_has_forgotten_still_has_its_claim(
    oarlock: Any, place: Path, api: Api, tmp_path: Path
) -> None:
    run = _start(place, api, "tool-forgotten")
    try:
        eventually(lambda: _job(api, run).get("status", {}).get("succeeded"), "end")
        for kind in KINDS:
            api.delete_all(kind, f"oarlock.dev/run={run.name}")
        eventually(lambda: not api.all("Pod", f"oarlock.dev/run={run.name}"), "end of its pods")
        done = oarlock("pull", run.name)
        assert done.returncode == 0, done.stderr
        _check_model(run.path / "model")
        eventually(lambda: not _helpers(api, run), "end of the pod")

        # One that can start nowhere: whoever waits for it may be told to leave.
        job = run.path / "job.yaml"
        written = job.read_text()
        job.write_text(f"{written}kubernetes:\n  node_selector: {{nobody: has-it}}\n")
        waiting = subprocess.Popen([SCRIPT, "pull", run.name], stderr=subprocess.PIPE)
        eventually(lambda: _helpers(api, run), "pod")
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(300) == 143
        assert waiting.stderr is not None
        waiting.stderr.close()
        eventually(lambda: not _helpers(api, run), "end of the pod")
        job.write_text(written)
    finally:
        _remove(api, run.name)
    eventually(lambda: api.find("PersistentVolumeClaim", run.name) is None, "end of the claim")
    done = oarlock("pull", run.name)
    assert done.returncode == 1
    assert f"claim {run.name} is gone from namespace team" in done.stderr


def test_a_local_run_is_here_already(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "local.py", "print('hello')")
    assert oarlock("run", "--name", "tool-local", "local.py").returncode == 0
    done = oarlock("pull", "tool-local")
    assert done.returncode == 0
    assert "ran on this machine: its model is already here, in " in done.stdout
    told = json.loads(oarlock("pull", "tool-local", "--json").stdout)
    assert set(told) == SHAPE
    assert (told["from"], Path(told["folders"]["model"]).name) == (None, "model")


def test_no_such_run(oarlock: Any) -> None:
    done = oarlock("pull", "tool-nobody")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_exec_brings_bytes_as_they_are(running: RunFolder, api: Api) -> None:
    text = (
        "import random, sys; sys.stdout.buffer.write(random.Random(2).randbytes(20_000_000)); "
        "sys.stderr.write('told'); sys.exit(7)"
    )
    kept = io.BytesIO()
    pod = _leader(api, running)
    assert pod_exec.run(api, pod, ["python3", "-c", text], kept) == (7, b"", b"told")
    assert kept.getvalue() == random.Random(2).randbytes(20_000_000)
    assert pod_exec.run(api, pod, ["python3", "-c", "print(1)"]) == (0, b"1\n", b"")


def test_exec_leaves_other_connections_alone(running: RunFolder, api: Api) -> None:
    """A thread that still reads from a closed socket would read from the next one with its number."""
    pod = _leader(api, running)
    for _ in range(40):
        assert pod_exec.run(api, pod, ["true"])[0] == 0
        with pytest.raises(ApiError, match="not found"):
            api.get("Pod", "tool-nobody")


def test_exec_says_why_not(running: RunFolder, api: Api) -> None:
    with pytest.raises(ApiError, match='"nosuch": executable file not found'):
        pod_exec.run(api, _leader(api, running), ["nosuch"])
    with pytest.raises(ApiError) as caught:
        pod_exec.run(api, "tool-nobody", ["true"])
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
