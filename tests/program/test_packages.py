"""What a program cannot do without, and the package that brings it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from oarlock.program import packages
from oarlock.program.imports import scan
from tests.support.small_programs import write

PROGRAM = """
import sys, typing
import flax.linen as nn, helper
from torch.utils.tensorboard import SummaryWriter
try:
    import wandb
    import numpy
except (ImportError, OSError):
    import comet
try:
    import optional
except Exception:
    pass
if typing.TYPE_CHECKING:
    import pandas
if sys.version_info < (3, 11):
    import tomli
if keras.backend.backend() == "jax":
    import jax
try:
    import optax
finally:
    print()
def train():
    import PIL.Image
    import numpy as np
"""


def test_what_may_fail_to_be_imported_is_not_needed(tmp_path: Path) -> None:
    write(tmp_path / "train.py", PROGRAM)
    write(tmp_path / "helper.py", "import yaml\ntry: import maybe\nexcept ImportError: maybe = None")
    write(tmp_path / "maybe.py", "import triton")
    found = scan(tmp_path, "train.py")
    assert {name for name in found.needed if name not in ("sys", "typing")} == {
        *("flax.linen", "torch.utils.tensorboard.SummaryWriter", "optax", "PIL.Image", "numpy", "yaml"),
    }
    assert {"wandb", "comet", "pandas", "tomli", "jax", "triton", "optional"} <= set(found.modules)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python"),
        ("PIL.Image", "pillow"),
        ("sklearn.linear_model", "scikit-learn"),
        ("orbax.checkpoint", "orbax-checkpoint"),
        ("yaml", "PyYAML"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("google.protobuf.message", "protobuf"),
        ("torch.utils.tensorboard.SummaryWriter", "tensorboard"),
        ("torch_geometric.nn", "torch-geometric"),
    ],
)
def test_the_package_of_a_module(module: str, package: str) -> None:
    assert packages.packages_of(module)[-1] == package


def test_what_is_installed_here_knows_best() -> None:
    assert packages.packages_of("_pytest.config")[0] == "pytest"
    assert packages.packages_of("os.path") == packages.packages_of("oarlock.keras") == ()
    assert packages.pinned("pytest") == f"pytest=={metadata.version('pytest')}"
    assert packages.pinned("no-such-package") == "no-such-package"
    assert [packages.is_from_folder(name) for name in ("oarlock", "pytest", "no-such-package")] == [
        *(metadata.distribution("oarlock").read_text("direct_url.json") is not None, False, False),
    ]


def test_only_what_nobody_brings_is_missing() -> None:
    modules = ["os", "flax.linen", "optax", "yaml", "jax.numpy", "PIL"]
    assert packages.missing(modules, ["jax"], []) == ["flax", "optax", "PyYAML", "pillow"]
    assert packages.missing(modules, ["jax"], ["flax[all]>=0.8", "Pillow~=11.0"]) == []  # flax brings two
    assert packages.missing(["_pytest"], [], ["pytest"]) == []
    assert packages.missing(["pluggy"], [], ["pytest==8; python_version > '3'"]) == []  # by its metadata
    assert packages.missing(modules, ["jax"], ["./wheels/mine.whl"]) is None
    assert packages.missing(modules, ["jax"], ["flax @ https://example.com/flax.whl"]) is None
