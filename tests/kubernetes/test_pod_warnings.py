"""What `plan` and `run` say about a program that works here and will not in its pods. Asks no cluster."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.manifests import packing
from oarlock.job.job_file import load
from oarlock.screens import travel_text
from tests.support.small_programs import write

ORBAX = (
    "orbax saves from every task into one folder, and these pods share none: saving will hang; "
    "set kubernetes.claim.shared, with access: ReadWriteMany"
)
ALL = "[optax, orbax-checkpoint]"
SHARED = "kubernetes: {claim: {access: ReadWriteMany, shared: true}}"


def warnings(folder: Path, text: str, job: str = "", **flags: Any) -> list[str]:
    write(folder / "train.py", text)
    (folder / "job.yaml").write_text(f"program: train.py\n{job}\n")
    overrides = {"roles.worker.replicas": flags.pop("workers", 1), **flags}
    return list(packing.pack(load(None, overrides=overrides, cwd=folder, is_here=False), "r-abcd").warnings)


def test_packages_that_no_pod_has_are_named_with_the_line_to_add(tmp_path: Path) -> None:
    text = "import jax, optax, numpy, scipy.linalg, sklearn.svm"
    [told] = warnings(tmp_path, text, "pip: [tqdm]")
    image = "python:"
    assert told.startswith(f"optax and scikit-learn are imported, and neither {image}")
    pinned = re.sub(r"==[\d.]+", "", told)  # to the version that is installed here, if one is
    assert pinned.endswith("nor pip: in the job brings them; add: pip: [tqdm, optax, scikit-learn]")
    assert warnings(tmp_path, text, "pip: [optax, scikit-learn]") == []
    assert warnings(tmp_path, text, "kubernetes: {image: mine}") == [], "what is in it is not known"


def test_the_packages_of_an_ingest_are_in_the_pods_that_train(tmp_path: Path) -> None:
    text, ingest = "import optax", "ingest: {program: prepare.py, pip: optax}"
    (tmp_path / "prepare.py").touch()
    assert warnings(tmp_path, text, ingest) == []
    [told] = warnings(tmp_path, text, f"{ingest}\nroles: {{chief: 1, ps: 1}}")
    assert told.startswith("optax is imported"), "ps read no data, and run the same program"


def test_what_is_in_object_storage_needs_obstore(tmp_path: Path) -> None:
    snapshots = "storage: {snapshots: 's3://bucket/runs'}"
    [told] = warnings(tmp_path, "import numpy", snapshots)
    assert told.startswith("numpy is imported, storage.snapshots needs obstore, and neither python:")
    assert re.sub(r"==[\d.]+", "", told).endswith("brings them; add: pip: [numpy, obstore]")
    sources = "ingest: {sources: {a: 'gs://bucket/a', b: 'https://host/b'}"
    for job, needing in (
        (snapshots, "storage.snapshots needs"),
        ("storage: {snapshots: backup}", "storage.snapshots needs"),
        ("storage: {weights: 'az://container/run'}", "storage.weights needs"),
        (f"{sources}}}\n{snapshots}", "storage.snapshots and ingest.sources need"),
    ):
        [told] = warnings(tmp_path, "", job)
        assert told.startswith(f"{needing} obstore, and neither ")
        assert warnings(tmp_path, "", f"{job}\npip: obstore") == []
    assert warnings(tmp_path, "", f"{sources}, pip: obstore}}\n{snapshots}") == []
    assert warnings(tmp_path, "", "ingest: {sources: {b: 'https://host/b'}}") == []


def test_the_translator_has_what_it_needs() -> None:
    """Its stages bring `tokenizers`, and it imports JAX only if that is Keras's backend."""
    job = load("examples/transformer", cwd=Path(__file__).parents[2], is_here=False)
    assert packing.pack(job, "r-abcd").warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow as tf, keras, numpy, h5py, absl.app",
        "import torch, torchvision, numpy, PIL, torch.distributed",
        "import jax.numpy, numpy, scipy",
        "import oarlock, json, helper",
    ],
)
def test_what_the_default_image_has_is_not_named(tmp_path: Path, text: str) -> None:
    write(tmp_path / "helper.py", "import os")
    assert warnings(tmp_path, text) == []


def test_a_command_that_runs_python_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import optax")
    [told] = warnings(tmp_path, "", command=["python", "other.py"])
    assert told.startswith("optax is imported, and neither ")


def test_orbax_needs_a_folder_that_all_pods_share(tmp_path: Path) -> None:
    text = "import orbax.checkpoint"
    assert warnings(tmp_path, text, f"pip: {ALL}", workers=2) == [ORBAX]
    assert warnings(tmp_path, text, f"pip: {ALL}\nkubernetes: {{claim: none}}", workers=2) == [ORBAX]
    assert warnings(tmp_path, text, f"pip: {ALL}") == []
    assert warnings(tmp_path, text, f"pip: {ALL}\n{SHARED}", workers=2) == []
    for place in ("gs://bucket/run", "/mounted"):
        assert warnings(tmp_path, text, f"pip: {ALL}\nstorage: {{checkpoints: '{place}'}}", workers=2) == []


def test_plan_shows_them_and_run_says_them_before_it_sends(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import orbax.checkpoint")
    words = ("--set", "pip=orbax-checkpoint", "-n", "2", "train.py")
    nowhere = {**os.environ, "KUBECONFIG": "/nowhere"}
    done = oarlock("plan", "--on", "kubernetes", *words, env=nowhere)
    assert f"warnings\n  {ORBAX}" in done.stdout, done.stderr
    assert json.loads(oarlock("plan", "--json", *words, env=nowhere).stdout)["warnings"] == [ORBAX]
    assert travel_text.lines(tmp_path, 1, 2, [], [ORBAX])[1:] == [f"warning: {ORBAX}"]
