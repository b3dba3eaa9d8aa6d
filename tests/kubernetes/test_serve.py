"""`oarlock serve --on kubernetes`, as a user with the role `edit`: it answers until it is gone.

The tests of this file share one server and go through its life in their order.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import REVISION, selecting
from oarlock.engines.kubernetes.deployments import rollout
from oarlock.engines.kubernetes.follow import pod_status
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support.clusters import Cluster, everything
from tests.support.commands import SCRIPT, started
from tests.support.kubernetes.causes import evict
from tests.support.kubernetes.driving import Named, unused
from tests.support.kubernetes.serving import (
    IMAGE,
    SMALL_SERVER,
    answer_of,
    answering,
    ask,
    asked,
    client_pod,
    pods_of,
    port_of,
    write_model,
)
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, Store, needs_store
from tests.support.waiting import eventually

WORDS = ("--on", "kubernetes", "-d", "--model-name", "adder", *SMALL_SERVER, *IMAGE)
TRAIN = """
    import os, pathlib, shutil
    import oarlock
    shutil.copytree("exported", pathlib.Path(os.environ["MODEL_DIR"]) / "1")
    oarlock.current().report(step=1, loss=0.5)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_model(folder / "three", 3)
    return folder


@pytest.fixture(autouse=True)
def home(place: Path, surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


@pytest.fixture(scope="module")
def name(api: Api) -> Iterator[str]:
    """Of the one server; whatever is left of it goes."""
    found = unused()
    yield found
    rollout.delete(api, Named(found), now=True, patience=60)


def _call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=400, check=False)


def _oarlock(*words: str | Path) -> str:
    done = _call(*words)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_folder_is_handed_over_and_answers(place: Path, name: str, api: Api) -> None:
    said = _oarlock("serve", place / "three", "--name", name, *WORDS).splitlines()
    assert said[0] == f"serving adder, version 1 (model.py) at http://{name}.{api.namespace}.svc:8000"
    assert f"-n {api.namespace} port-forward service/{name} 8000" in said[1]
    assert re.fullmatch(r"try: curl .*http://127\.0\.0\.1:8000/v1/models/adder:predict -d .*", said[2])
    [pod] = answering(api, name)
    assert pod["spec"]["automountServiceAccountToken"] is False
    with port_of(api, pod) as port:
        assert ask(port, [1, 2]) == 9
    state = json.loads(_oarlock("status", name, "--json"))
    assert (state["state"], state["engine"], state["generation"]) == ("running", "kubernetes-serving", 1)
    [task] = state["tasks"]
    assert (f"{name}-{task['name']}", task["state"]) == (pod["metadata"]["name"], "running")
    assert task["step"] >= 1
    assert "serving adder, version 1" in _oarlock("logs", name)
    refused = _call("predict", "-m", name, "[1, 2]")
    assert f"{name} answers on its cluster: run `kubectl" in refused.stderr
    assert "-m http://127.0.0.1:8000" in refused.stderr


def test_it_is_scaled_and_a_pod_that_is_killed_is_replaced(name: str, api: Api) -> None:
    assert _oarlock("scale", name, "2") == f"{name} answers with 2 replicas\n"
    [first, other] = answering(api, name)
    api.delete("Pod", first["metadata"]["name"], grace=0)
    with port_of(api, other) as port:
        assert ask(port, [2, 2]) == 12
    eventually(lambda: len(answering(api, name)) == 2, "a pod in its place", 120)
    names = {pod["metadata"]["name"] for pod in answering(api, name)}
    assert first["metadata"]["name"] not in names
    rows = json.loads(_oarlock("ps", "--refresh", "--json"))
    assert {f"{name}-{task['name']}" for task in rows[0]["tasks"]} == names


def test_an_eviction_fails_no_request(name: str, api: Api) -> None:
    """As the drain of a node does it: pod after pod, each once the one before it is replaced."""
    before = {pod["metadata"]["name"] for pod in answering(api, name)}
    with asked(api, name) as asking:
        for pod in before:
            eventually(lambda: evict(api, pod) == 201, f"leave to evict {pod}", 120)  # noqa: B023
        eventually(lambda: not before & _all(api, name), "end of the evicted pods", 120)
        eventually(lambda: len(answering(api, name)) == 2, "pods in their place", 120)
        assert asking.end().keys() == {answer_of(3)}


def test_an_update_fails_no_request(place: Path, name: str, api: Api) -> None:
    before = {pod["metadata"]["name"] for pod in pods_of(api, name)}
    with asked(api, name) as asking:
        _oarlock("serve", write_model(place / "five", 5), "--name", name, "--replicas", "2", *WORDS)
        asking.until_seen(answer_of(5))
        eventually(lambda: not before & _all(api, name), "end of the old pods", 120)
        assert asking.end().keys() == {answer_of(3), answer_of(5)}
    assert json.loads(_oarlock("status", name, "--json"))["generation"] == 2
    assert len(api.all("ConfigMap", selecting(name))) == 1, "those of the first are gone"


def test_an_update_that_does_not_load_leaves_what_was_served(place: Path, name: str, api: Api) -> None:
    folder = write_model(place / "broken", 7)
    (folder / "1" / "model.py").write_text("def load(folder):\n    raise ValueError('no weights')\n")
    done = _call("serve", folder, "--name", name, "--replicas", "2", *WORDS)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert f"{name} does not start: " in done.stderr
    assert "no weights" in done.stderr
    assert "what was served before still is" in done.stderr
    eventually(lambda: len(pods_of(api, name)) == 2, "end of the new pod", 60)
    with port_of(api, answering(api, name)[0]) as port:
        assert ask(port, [1, 2]) == 15


@only_in_soak
def test_it_is_stopped_and_resumed(name: str, api: Api) -> None:
    assert _oarlock("stop", name).startswith(f"{name} stopped")
    assert pods_of(api, name) == []
    assert json.loads(_oarlock("status", name, "--json"))["state"] == "stopped"
    _oarlock("run", "--resume", name, "-d")
    eventually(lambda: len(answering(api, name)) == 2, "its pods", 120)
    assert json.loads(_oarlock("status", name, "--json"))["state"] == "running"


def test_another_machine_finds_it(
    name: str, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "elsewhere"))
    state = json.loads(_oarlock("status", name, "--json"))
    assert (state["state"], state["engine"]) == ("running", "kubernetes-serving")
    with _left_behind(api, name), started(SCRIPT, "attach", name) as client:
        assert client.stdout is not None
        said = next(line for line in client.stdout if "serving adder" in line)
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    assert said.partition(" | ")[0].strip() in {task["name"] for task in state["tasks"]}


@contextmanager
def _left_behind(api: Api, name: str) -> Iterator[None]:
    """A pod with output, of an update that was taken back and that is slow to go."""
    left = f"{name}-left"
    pod = client_pod(left, name)
    labels = pods_of(api, name)[0]["metadata"]["labels"]
    pod["metadata"] |= {
        "labels": {key: value for key, value in labels.items() if key != "pod-template-hash"},
        "annotations": {REVISION: "9"},
    }
    api.create(pod)
    try:
        eventually(lambda: pod_status.has_started(api.get("Pod", left)), "start of the pod that is left", 60)
        eventually(lambda: any(api.log(left)), "its output", 60)
        yield
    finally:
        api.delete("Pod", left, grace=0)


def test_deleting_it_leaves_nothing(name: str, api: Api) -> None:
    assert rollout.remaining(api, Named(name)) != []
    refused = _call("delete", name)
    assert "is running" in refused.stderr
    _oarlock("delete", "--force", name)
    assert rollout.remaining(api, Named(name)) == []


def test_a_model_that_does_not_load_leaves_nothing(place: Path, api: Api, home: Path) -> None:
    folder, name = place / "broken", unused()
    done = _call("serve", folder, "--name", name, *WORDS)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "no weights" in done.stderr
    assert rollout.remaining(api, Named(name)) == []
    assert not (home / "runs" / name).exists()


def test_a_gateway_where_there_is_none_leaves_nothing(place: Path, api: Api) -> None:
    """Whoever may not create routes is not told whether the cluster knows of them."""
    name = unused()
    words = ("--ingress", "a.example.org", "--gateway", "web")
    done = _call("serve", place / "three", "--name", name, *words, *WORDS)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "you may not create an HTTPRoute" in done.stderr
    assert "leave out --gateway for an Ingress" in done.stderr
    assert rollout.remaining(api, Named(name)) == []


def test_a_strangers_deployment_is_left_alone(place: Path, api: Api) -> None:
    name = unused()
    pod = {"metadata": {"labels": {"a": name}}, "spec": client_pod("x", "y")["spec"]}
    pod["spec"] = {**pod["spec"], "restartPolicy": "Always"}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": pod}
    api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    try:
        before = api.get("Deployment", name)["spec"]
        done = _call("serve", place / "three", "--name", name, *WORDS)
        assert done.returncode == 2, done.stderr
        assert f"there is a Deployment called {name} in namespace {api.namespace}" in done.stderr
        assert api.get("Deployment", name)["spec"] == before
    finally:
        api.delete("Deployment", name)


def test_the_model_of_a_run_is_served_from_its_claim(place: Path, api: Api) -> None:
    job, name = unused(), unused()
    words = (*SMALL_WORDS, "--set", f"name={job}")
    folder = place / job
    folder.mkdir()
    write(folder / "train.py", TRAIN)
    (write_model(folder / "models", 4) / "1").rename(folder / "exported")
    try:
        _oarlock("run", "--on", "kubernetes", "--name", f"{job}-run", *words, folder / "train.py")
        _oarlock("serve", f"{job}-run", "--name", name, *WORDS)
        [pod] = answering(api, name)
        [mount] = [
            one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["name"] == "oarlock-store"
        ]
        assert mount["readOnly"] is True
        with port_of(api, pod) as port:
            assert ask(port, [1, 2]) == 12
        _oarlock("delete", "--force", name)
        assert rollout.remaining(api, Named(name)) == []
        assert stop_delete.claims_of(api, job), "the claim is the run's"
    finally:
        rollout.delete(api, Named(name), now=True, patience=60)
        stop_delete.delete(api, Named(f"{job}-run"), now=True, patience=60)
        stop_delete.delete_claims(api, stop_delete.claims_of(api, job), 60)


@only_in_soak
@needs_store
def test_a_model_in_a_bucket_is_fetched_and_a_newer_one_taken_over(tmp_path: Path, api: Api) -> None:
    name, secret = unused(), unused()
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": store.env()}
    )
    try:
        folder = write_model(tmp_path / "bucket" / BUCKET / "adder", 2)
        words = ("--set", f"kubernetes.secrets.{secret}.variables=true")
        _oarlock("serve", f"s3://{BUCKET}/adder", "--name", name, *WORDS, *words)
        [pod] = answering(api, name)
        with port_of(api, pod) as port:
            assert ask(port, [1, 2]) == 6
            write_model(folder, 8, number=2)
            eventually(lambda: ask(port, [1, 2]) == 24, "answer of the newer version", 120)
        [same] = answering(api, name)
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    finally:
        rollout.delete(api, Named(name), now=True, patience=60)
        api.delete("Secret", secret)
        store.kill()


@only_in_soak
def test_an_autoscaler_and_an_ingress_come_and_go_with_it(place: Path, api: Api, cluster: Cluster) -> None:
    """No controller acts on them here, and none has to: the server answers without."""
    name = unused()
    asked_for = ("--set", "serve.replicas=1..3", "--ingress", "adder.example")
    try:
        _oarlock("serve", place / "three", "--name", name, *WORDS, *asked_for)
        [pod] = answering(api, name)
        with port_of(api, pod) as port:
            assert ask(port, [1, 2]) == 9
        [scaler] = api.all("HorizontalPodAutoscaler", selecting(name))
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        bounds = {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": target}
        assert {key: scaler["spec"][key] for key in bounds} == bounds
        [ingress] = api.all("Ingress", selecting(name))
        [rule] = ingress["spec"]["rules"]
        [path] = rule["http"]["paths"]
        assert (rule["host"], path["backend"]["service"]["name"]) == ("adder.example", name)
        _oarlock("delete", "--force", name)
        assert everything(cluster, f"oarlock.dev/run={name}") == []
    finally:
        rollout.delete(api, Named(name), now=True, patience=60)


def test_what_render_prints_is_accepted(place: Path, api: Api) -> None:
    sets = ("--set", "serve.replicas=1..3", "--set", "serve.ingress=adder.example")
    said = _oarlock("render", "--as", "deployment", "--json", *sets, place / "three")
    rendered = json.loads(said)["items"]
    assert {one["kind"] for one in rendered} >= {"Deployment", "HorizontalPodAutoscaler", "Ingress"}
    for one in rendered:
        api.create(one, dry_run=True)


def _all(api: Api, name: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in api.all("Pod", selecting(name))}
