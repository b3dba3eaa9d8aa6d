"""The trained network as a SavedModel with text in and text out: a server needs only TensorFlow.

Splitting sentences into pieces, the search, and joining pieces are operations of its graph. The vocabulary
is an asset in it, and settings.json beside it says how it was trained. TensorFlow exports it, whichever
backend trained it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dataset
import keras
import numpy as np

NOT_SETTINGS = ("data", "weights", "save", "keep", "export_every")  # they say nothing about the model


def export_model(
    network: keras.Model, data: dataset.Dataset, args: argparse.Namespace, step: int
) -> Path | str | None:
    """Write the next version of the model and return its path. In this process if Keras runs on TensorFlow,
    else in another one where it does: weights are the same for all backends."""
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "trained.npz")
        # Not `save_weights`: with several JAX workers it waits for all of them, and only the chief is here.
        np.savez(weights, *network.get_weights())
        settings = os.path.join(folder, "settings.json")
        with open(settings, "w", encoding="utf-8") as file:
            json.dump(settings_of(data, args), file, indent=2)
        words = ["--weights", weights, "--step", str(step), "--settings", settings, "--keep", str(args.keep)]
        for name in ("data", "beams", "width", "depth", "heads", "dropout"):
            words += [f"--{name}", str(getattr(args, name))]
        if keras.backend.backend() == "tensorflow":
            return main(words)
        environ = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, os.path.abspath(__file__), *words]
        return subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()[-1]


def settings_of(data: dataset.Dataset, args: argparse.Namespace) -> dict[str, Any]:
    """How the network was built and trained."""
    given = {name: value for name, value in vars(args).items() if name not in NOT_SETTINGS}
    made = {"vocabulary": data.vocabulary, "longest": data.longest}
    return {**given, **made, "backend": keras.backend.backend()}


def main(words: Sequence[str] | None = None) -> Path | None:
    """Export the weights in a file: `python export.py --weights FILE`."""
    import model
    import translator

    import oarlock

    parser = argparse.ArgumentParser(description="Export a trained Transformer")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--weights", required=True, help="a file that train.py --weights wrote")
    parser.add_argument("--step", type=int, help="that they were trained for")
    parser.add_argument("--settings", help="a file that says how they were trained, to put beside them")
    parser.add_argument("--keep", type=int, help="the newest versions to keep; usually all")
    parser.add_argument("--beams", type=int, default=4, help="beginnings that the search keeps")
    parser.add_argument("--width", type=int, default=128, help="as for train.py")
    parser.add_argument("--depth", type=int, default=2, help="as for train.py")
    parser.add_argument("--heads", type=int, default=8, help="as for train.py")
    parser.add_argument("--dropout", type=float, default=0.1, help="as for train.py")
    args = parser.parse_args(words)
    data = dataset.read(args.data)
    network = model.build(data, args)  # outside any strategy
    with np.load(args.weights) as saved:
        network.set_weights([saved[name] for name in saved.files])
    return oarlock.export(
        translator.Translator(network, data.vocabulary_file, args.beams),
        kind="text",
        files=[args.settings] if args.settings else [],
        step=args.step,
        keep=args.keep,
    )


if __name__ == "__main__":
    print(main())
