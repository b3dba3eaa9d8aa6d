"""The job files of docs/from-the-recipes.md train: each is run on this machine, to its end.

The programs are small, and what they learn is made up. The files are run as the page shows them, but for the
places elsewhere that they name: a bucket, an address, folders at the root. What only a cluster has (pods,
claims, nodes) is left out; test_from_the_recipes.py renders the same files for one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from oarlock.checkpoints.store import Store
from oarlock.engines.local import gpu_devices
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support import stores
from tests.support.commands import home_in, printed_by
from tests.support.recipes import HELM, JINJA, PROGRAMS, STATEFUL_SET, TFJOB, place
from tests.support.soaking import only_in_soak

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("recipes")
    with home_in(folder):
        yield folder


def train(top: Path, recipe: str, *sets: str) -> tuple[RunFolder, str]:
    """The job file with its programs beside it, run to the end: the run, and what was printed.
    `sets` replace what names a place elsewhere."""
    folder, name = top / PROGRAMS[recipe], PROGRAMS[recipe].replace("_", "-")
    place(recipe, folder)
    if gpu_devices.find(os.environ).all:
        sets = (*sets, "roles.worker.gpu=0")  # it may be fewer than the job asks for
    words = [word for field in sets for word in ("--set", field)]
    # Importing TensorFlow takes longer than these trainings: it stays loaded for the next one.
    printed = printed_by(folder, "run", "--warm", "30s", "--name", name, *words)
    return runs.find(name), printed


def steps_saved(folder: Path) -> list[int]:
    return [checkpoint.step for checkpoint in Store(folder).checkpoints()]


@only_in_soak  # test_mnist.py has such a fit
def test_the_jinja_template_is_a_fit_on_two_workers(top: Path) -> None:
    made, _ = train(top, JINJA)
    state = made.state()
    assert state.tasks.keys() == {"worker-0", "worker-1"}
    assert state.tasks["worker-0"].step == 48  # six epochs of 512 digits, 64 in a step
    assert state.tasks["worker-0"].metrics["accuracy"] > 0.9
    assert (made.path / "model" / "saved_model.pb").is_file()
    assert steps_saved(top / "jinja" / "checkpoints")[-1] == 48


def test_the_helm_chart_ingests_trains_on_servers_and_is_scored(top: Path) -> None:
    made, told = train(top, HELM)
    state, folder = made.state(), top / "helm"
    assert "ignored on this machine: " in told
    assert "roles.evaluator.node_selector" in told
    assert "made imagenet" in told
    assert state.tasks.keys() >= {"chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"}
    assert state.tasks["chief-0"].step == 60
    saved = steps_saved(folder / "imagenet-checkpoints")
    assert saved[-1] == 60
    assert set(saved) <= {20, 40, 60}  # one is not made while the one before it is still being written
    assert state.scores["precision"].latest_step == 60
    assert state.scores["precision"].latest > 0.5  # of five classes; steps of two workers, in any order
    assert (folder / "imagenet-eval" / "60.txt").is_file()


@only_in_soak  # test_mnist.py has such a loop, test_snapshots.py the bucket
@stores.needs_store
def test_the_stateful_set_is_a_loop_on_three_workers_with_copies_in_a_bucket(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stores.serving(top / "bucket", monkeypatch) as bucket:
        made, _ = train(top, STATEFUL_SET, f"storage.snapshots=s3://{stores.BUCKET}/training-snapshots")
        state = made.state()
        assert state.tasks.keys() == {"worker-0", "worker-1", "worker-2"}
        assert state.tasks["worker-0"].step == 60
        assert state.tasks["worker-0"].metrics["loss"] < 1  # 2.1 by chance
        assert stores.newest(stores.complete(bucket, made.name)) == 60


@only_in_soak  # the chart above ingests, has a chief and parameter servers as well
def test_the_tfjob_has_a_master_who_prepares_and_leads(top: Path) -> None:
    chance = np.random.default_rng(1)
    known = chance.normal(3, 2, (300, 2))
    rows = np.column_stack((known, known @ (2, -1)))
    (top / "github_issues.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    model = top / "model"
    made, _ = train(
        top,
        TFJOB,
        f"ingest.sources={json.dumps({'issues.csv': str(top / 'github_issues.csv')})}",
        f"storage.data={top / 'data'}",
        f"storage.checkpoints={model / 'checkpoints'}",
        f"storage.model={model / 'export'}",
    )
    state = made.state()
    assert len(state.tasks) >= 9
    assert state.tasks["chief-0"].step == 80
    assert state.tasks["chief-0"].metrics["loss"] < 0.5  # 1 is that of the mean
    assert (model / "features" / "features.npy").is_file()
    assert (model / "export" / "weights.npy").is_file()
