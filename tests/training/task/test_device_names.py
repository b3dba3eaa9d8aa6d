"""Which GPUs frameworks say that they use: none here, but each is really asked; see tests/gpu."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.support.soaking import cases

ASK = """
import {framework}, sys
from oarlock.training.task import device_names
assert device_names.in_use() == []
{compute}
names = device_names._{framework}({framework})  # in_use would hide an error
print(*names, "none" if not names else "")
"""


@pytest.mark.parametrize(
    ("framework", "compute"),
    cases(
        [("torch", "torch.ones(3).sum()"), ("jax", "jax.numpy.ones(3).block_until_ready()")],
        soak=[("tensorflow", "tensorflow.ones(3)")],
    ),
)
def test_processors_are_no_gpus(framework: str, compute: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    code = ASK.format(framework=framework, compute=compute)
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout.split() == ["none"], done.stderr
