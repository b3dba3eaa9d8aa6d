"""Replicas that are forked from a process that has imported TensorFlow, and load a SavedModel after that."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.model_servers import ModelServer, model_server
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EXPORT = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
from oarlock.models.model_versions import new_version
from pathlib import Path
model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2, use_bias=False)])
for factor in (1, 2):
    model.set_weights([factor * np.arange(8, dtype="float32").reshape(4, 2)])
    if factor == 1:
        with new_version(Path(sys.argv[1])) as draft:
            model.export(str(draft), verbose=False)
    else:
        model.export(sys.argv[1] + "-next", verbose=False)
"""


def ask(server: ModelServer, row: list[float]) -> list[float]:
    body = json.dumps({"instances": [row]}).encode()
    where = f"{server.url}/v1/models/dense:predict"
    with urllib.request.urlopen(where, body, timeout=300) as answer:
        found: list[float] = json.load(answer)["predictions"][0]
    return found


@only_in_soak
def test_a_saved_model_is_served_by_several_replicas_and_updated(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    subprocess.run([sys.executable, "-c", EXPORT, str(folder)], check=True, timeout=500)
    with model_server(folder, tmp_path, name="dense", replicas=2) as server:
        assert ask(server, [1, 1, 1, 1]) == pytest.approx([12, 16])
        eventually(lambda: len(server.replicas) == 2, "two replicas", 500)
        (tmp_path / "models-next").rename(folder / "2")
        eventually(lambda: ask(server, [1, 1, 1, 1]) == pytest.approx([24, 32]), "version 2", 500)
        server.replicas[0].kill()
        eventually(lambda: len(server.replicas) == 2, "another replica", 500)
        assert ask(server, [1, 0, 0, 0]) == pytest.approx([0, 2])
        assert "version 2" in server.said
        assert server.stop() == 0
