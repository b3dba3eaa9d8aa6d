"""Loops that schedule their steps on workers: a checkpoint has what its steps made, for any servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from oarlock.checkpoints.safetensors import TensorFile
from oarlock.checkpoints.store import Store
from tests.support.soaking import only_in_soak

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs/coordinated.py"


def run(folder: Path, servers: int, total: int) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = {**kept, "PYTHONPATH": path, "CHECKPOINT_DIR": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"}
    words = [sys.executable, str(PROGRAM), str(servers), str(total)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@only_in_soak
def test_a_checkpoint_has_exactly_its_steps_and_fits_another_number_of_servers(tmp_path: Path) -> None:
    first = run(tmp_path, servers=2, total=40)
    assert first["trained"]["count"] == 40
    assert first["trained"]["shards"] == [2, 2]
    saved = {checkpoint.step: checkpoint for checkpoint in Store(tmp_path).checkpoints()}
    assert 40 in saved
    for number, checkpoint in saved.items():
        tensors = TensorFile(checkpoint.path / "state.safetensors")
        assert int.from_bytes(tensors.bytes_of("count.0"), "little") == number
    # What the last step returned. The one before it may have ended after it, on the other worker.
    assert saved[40].manifest["metrics"] in ({"count": 39.0}, {"count": 40.0})
    assert 0 < first["ahead"] <= 8 + 2 + 1, "a few steps wait for each of two workers, and they run two"

    second = run(tmp_path, servers=3, total=50)
    assert second["first"] == 40
    assert second["restored"] == {**first["trained"], "shards": [3, 3]}
    assert second["trained"]["count"] == 50
