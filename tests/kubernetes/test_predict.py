"""`oarlock predict --on kubernetes`, as a user with the role `edit`: pods share the examples, and one that is
deleted costs no answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, Object
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Named, unused
from tests.support.kubernetes.serving import IMAGE, SMALL_SERVER, write_model
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.stores import BUCKET, Store, needs_store
from tests.support.waiting import eventually

WORDS = ("--on", "kubernetes", *SMALL_SERVER, *IMAGE)
# Each row says who answered.
SIGNED = """
import time, uuid
import numpy as np

class Model:
    def __init__(self):
        self.name = uuid.uuid4().hex

    def predict(self, inputs):
        time.sleep(0.1)
        return {"y": inputs["x"].sum(axis=1), "by": np.array([self.name] * len(inputs["x"]))}

def load(folder):
    return Model()
"""
TRAIN = """
    import os, pathlib, shutil
    import oarlock
    shutil.copytree("exported", pathlib.Path(os.environ["MODEL_DIR"]) / "1")
    oarlock.current().report(step=1, loss=0.5)
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Examples whose answers tell them apart."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"[{number}, {number}]\n" for number in range(40)))
    return path


def _call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=400, check=False)


def _answers(path: Path) -> list[tuple[str, object]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(one["input"], next(iter(one["outputs"].values()))) for one in lines]


def _pods(api: Api, job: str) -> list[Object]:
    found = api.all("Pod", f"{HELPER}=predict")
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{job}-predict-")]


def _left(api: Api, job: str) -> list[str]:
    found = [*api.all("Job", f"{HELPER}=predict"), *_pods(api, job), *api.all("ConfigMap")]
    names = [one["metadata"]["name"] for one in found]
    return [name for name in names if name.startswith(f"{job}-predict-")]


def test_pods_share_the_examples_and_answer_as_this_machine_does(
    cluster: object, api: Api, tmp_path: Path, rows: Path
) -> None:
    job = unused()
    model = write_model(tmp_path / job, 3)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    done = _call("predict", "-m", model, "-n", "2", "--batch", "3", "-o", here, rows)
    assert done.returncode == 0, done.stderr
    done = _call("predict", "-m", model, "-n", "2", "--batch", "3", "-o", there, *WORDS, rows)
    assert done.returncode == 0, done.stderr
    assert f"2 pods of {job}-predict-" in done.stderr
    assert done.stderr.endswith(f"40 answers in {there}\n")
    assert here.read_bytes() == there.read_bytes()
    assert _answers(there) == [(f"{rows}:{n + 1}", 6.0 * n) for n in range(40)]
    eventually(lambda: not _left(api, job), "end of the Job, its pods and its ConfigMap")


@only_in_soak
def test_pods_that_are_deleted_cost_no_answer(cluster: object, api: Api, tmp_path: Path) -> None:
    job = unused()
    model = write_model(tmp_path / job, 1)
    (model / "1" / "model.py").write_text(SIGNED)
    words: list[str | Path] = [SCRIPT, "predict", "-m", model, "-n", "2", "--batch", "1", "--json", *WORDS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write("".join(f"[{number}, 0]\n" for number in range(20)))
        client.stdin.flush()
        # It reads a line for each of the four requests that it has at a time, then waits for more.
        found = [json.loads(client.stdout.readline()) for _ in range(16)]
        for pod in _pods(api, job):
            api.delete("Pod", pod["metadata"]["name"])
        client.stdin.write("".join(f"[{number}, 0]\n" for number in range(20, 60)))
        client.stdin.close()
        found += [json.loads(line) for line in client.stdout]
        assert client.wait(120) == 0
    assert [one["input"] for one in found] == [f"standard input:{number + 1}" for number in range(60)]
    assert [one["outputs"]["y"] for one in found] == [float(number) for number in range(60)]
    names = [one["outputs"]["by"] for one in found]
    assert names[-1] not in names[:16], "another pod answers"
    eventually(lambda: not _left(api, job), "end of the Job, its pods and its ConfigMap")


def test_a_model_on_a_claim_answers_there(cluster: object, api: Api, tmp_path: Path, rows: Path) -> None:
    job, out = unused(), tmp_path / "out.jsonl"
    folder = tmp_path / job
    folder.mkdir()
    write(folder / "train.py", TRAIN)
    (write_model(folder / "models", 4) / "1").rename(folder / "exported")
    words = ("--on", "kubernetes", "--name", f"{job}-run", *SMALL_WORDS, "--set", f"name={job}")
    try:
        done = _call("run", *words, folder / "train.py")
        assert done.returncode == 0, done.stderr
        refused = _call("predict", "-m", f"{job}-run", "-o", out, rows)
        assert (refused.returncode, f"the model of {job}-run is on its cluster" in refused.stderr) == (
            1,
            True,
        )
        [advice] = re.findall("`oarlock (pull .*?)`", refused.stderr)
        pulled = _call(*advice.split())
        assert pulled.returncode == 0, pulled.stderr
        done = _call("predict", "-m", f"{job}-run", "-o", out, rows)
        assert done.returncode == 0, done.stderr
        assert _answers(out) == [(f"{rows}:{n + 1}", 8.0 * n) for n in range(40)]
        out.unlink()
        done = _call("predict", "-m", f"{job}-run", "-o", out, *WORDS, rows)
        assert done.returncode == 0, done.stderr
        assert _answers(out) == [(f"{rows}:{n + 1}", 8.0 * n) for n in range(40)]
    finally:
        stop_delete.delete(api, Named(f"{job}-run"), now=True, patience=60)
        stop_delete.delete_claims(api, stop_delete.claims_of(api, job), 60)


@needs_store
def test_a_model_in_a_bucket_answers_there(cluster: object, api: Api, tmp_path: Path, rows: Path) -> None:
    name, secret, out = unused(), unused(), tmp_path / "out.jsonl"
    store = Store(tmp_path / "bucket", urlsplit(api.server).hostname or "")
    store.start()
    api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": store.env()}
    )
    try:
        write_model(tmp_path / "bucket" / BUCKET / name, 2)
        words = ("--set", f"kubernetes.secrets.{secret}.variables=true", "-o", out)
        done = _call("predict", "-m", f"s3://{BUCKET}/{name}", *WORDS, *words, rows)
        assert done.returncode == 0, done.stderr
        assert _answers(out) == [(f"{rows}:{n + 1}", 4.0 * n) for n in range(40)]
    finally:
        api.delete("Secret", secret)
        store.kill()


def test_a_model_that_does_not_load_leaves_nothing(cluster: object, api: Api, tmp_path: Path) -> None:
    job = unused()
    model = write_model(tmp_path / job, 1)
    (model / "1" / "model.py").write_text("def load(folder):\n    raise ValueError('no weights')\n")
    done = _call("predict", "-m", model, *WORDS, "-o", tmp_path / "out", "[1, 2]")
    assert done.returncode == 1, done.stderr
    said = done.stderr.splitlines()
    assert "no weights" in said[-1], done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    eventually(lambda: not _left(api, job), "end of the Job, its pods and its ConfigMap")


def test_ctrl_c_leaves_nothing(cluster: object, api: Api, tmp_path: Path) -> None:
    job = unused()
    words: list[str | Path] = [
        SCRIPT,
        "predict",
        "-m",
        write_model(tmp_path / job, 1),
        "--batch",
        "1",
        "--json",
        *WORDS,
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write("[1, 2]\n" * 10)
        client.stdin.flush()
        assert json.loads(client.stdout.readline())["outputs"]
        assert len(_pods(api, job)) == 1
        client.send_signal(signal.SIGINT)
        assert client.wait(120) == 130
    eventually(lambda: not _left(api, job), "end of the Job, its pods and its ConfigMap")
