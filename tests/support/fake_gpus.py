"""A machine with GPUs: an executable called nvidia-smi that lists them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Machine = Callable[[int], None]


def listing(count: int) -> str:
    """What `nvidia-smi -L` prints for that many GPUs."""
    return "\n".join(f"GPU {one}: NVIDIA H200 (UUID: GPU-{one}a5d31ab-ecb1)" for one in range(count))


@pytest.fixture
def machine_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Call it with the number of GPUs."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)

    def make(count: int) -> None:
        folder = tmp_path / "gpu-driver"
        folder.mkdir(exist_ok=True)
        tool = folder / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{listing(count)}\nEND\n")
        tool.chmod(0o755)
        if str(folder) not in os.environ["PATH"]:
            monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return make
