"""Keras `fit` with two workers exports while it trains, and starts from the weights of another run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from oarlock.models.model_versions import versions
from oarlock.records import runs
from tests.support.soaking import only_in_soak

Command = Callable[..., subprocess.CompletedProcess[str]]
FIT = """
import sys
import keras, numpy as np, tensorflow as tf
import oarlock

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7 + len(sys.argv))
with strategy.scope():
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")

def publish():
    oarlock.export(model)

exports = {} if "plain" in sys.argv else {"export": publish, "export_every": 8}
callbacks = oarlock.keras.callbacks(model, save=5, **exports)

def told(when):
    if oarlock.current().is_chief:
        total = sum(float(np.abs(one).sum()) for one in model.get_weights())
        print(when, repr(total), int(model.optimizer.iterations.numpy()), callbacks.step, flush=True)

def dataset(_):
    x = tf.reshape(tf.range(64, dtype=tf.float32), (16, 4)) / 64
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8).repeat()

told("begins")
model.fit(strategy.distribute_datasets_from_function(dataset), steps_per_epoch=10, epochs=2,
          initial_epoch=callbacks.epoch, shuffle=False, verbose=0, callbacks=callbacks)
told("ends")
"""


def told(output: str, when: str) -> list[str]:
    """The sum of the weights to the last bit, the optimizer's steps, and the step at which it began."""
    [found] = re.findall(rf"\| {when} (.*)$", output, re.MULTILINE)
    return str(found).split()


@only_in_soak  # own loops export in tests/agent/snapshots, and fit saves in test_exact_resume.py
def test_versions_of_chosen_steps_change_nothing_in_the_training(oarlock: Command, tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(FIT)
    first = oarlock("run", "-n", "2", "--name", "first", "fit.py", "a")
    assert first.returncode == 0, first.stdout + first.stderr
    made = versions(runs.find("first").path / "model")
    assert [json.loads((one.path / "oarlock.json").read_text())["step"] for one in made] == [8, 16, 20]
    plain = oarlock("run", "-n", "2", "fit.py", "plain")
    assert told(plain.stdout, "ends") == told(first.stdout, "ends"), "to the last bit"

    import keras  # the last version computes what the trained weights do

    layer = keras.layers.TFSMLayer(str(made[-1].path), call_endpoint="serve")
    total = sum(float(abs(one.numpy()).sum()) for one in layer.weights)
    assert abs(total - float(told(first.stdout, "ends")[0])) < 1e-5

    second = oarlock("run", "-n", "2", "--from", "first", "fit.py", "a", "b")
    assert second.returncode == 0, second.stdout + second.stderr
    assert told(second.stdout, "begins") == [told(first.stdout, "ends")[0], "0", "0"]
    assert "starts from the weights of first, step 20: model" in second.stdout
