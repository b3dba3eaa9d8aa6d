"""The checks of a real GPU, where there is one: `python3 -m tests.gpu.checks` runs them without pytest."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.gpu import checks

pytestmark = pytest.mark.skipif(not checks.has_gpu(), reason="no driver of NVIDIA's answers here")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_a_real_gpu(check: checks.Check, tmp_path: Path) -> None:
    framework = "jax" if "jax" in check.__name__ else "torch"
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    try:
        print(check(tmp_path))
    except checks.NotCheckedError as reason:
        pytest.skip(str(reason))
