"""`oarlock predict --on kubernetes`, as a user with the role `edit`: pods share the examples, and a pod that is
deleted costs no answer."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import HELPER, INDEX, Object
from oarlock.engines.kubernetes.lifecycle import stop_delete
from tests.support.commands import SCRIPT
from tests.support.kubernetes.driving import Named, unused
from tests.support.kubernetes.serving import IMAGE, SMALL_SERVER, write_model
from tests.support.kubernetes.small import SMALL_WORDS
from tests.support.small_programs import write
from tests.support.stores import BUCKET, Store, needs_store
from tests.support.waiting import eventually

WORDS = ("--on", "kubernetes", *SMALL_SERVER, *IMAGE)
# Answers 100 until the file is there, so that pods can be deleted in the middle; each row says who answered.
SLOW = """
import os, time, socket
import numpy as np

class Model:
    def predict(self, inputs):
        time.sleep(0.5)
        who = [socket.gethostname()] * len(inputs["x"])
        return {"y": inputs["x"].sum(axis=1), "pod": np.array(who)}

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
