"""The trained network as a SavedModel with text in and text out: whoever serves it needs TensorFlow alone.

Cutting sentences into pieces, the search, and putting pieces together are operations of its graph; the
vocabulary is an asset in it. Whatever Keras trained it with, it is TensorFlow that exports it.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import keras


def export_model(network, args, step):
    """Write the next version of the model; returns its path. Here if Keras is on TensorFlow, else in a
    process where it is: weights are the same to all backends."""
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "trained.weights.h5")
        network.save_weights(weights)
        words = ["--weights", weights, "--step", str(step)]
        for name in ("data", "beams", "width", "depth", "heads", "dropout"):
            words += [f"--{name}", str(getattr(args, name))]
        if keras.backend.backend() == "tensorflow":
            return main(words)
        environ = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, os.path.abspath(__file__), *words]
        return subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()[-1]


def main(words=None):
    """Export weights of a file: `python export.py --weights FILE`."""
    import dataset
    import model
    import translator

    import oarlock

    parser = argparse.ArgumentParser(description="Export a trained Transformer")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--weights", required=True, help="a file of Keras's save_weights")
    parser.add_argument("--step", type=int, help="that they were trained for")
    parser.add_argument("--beams", type=int, default=4, help="beginnings that the search keeps")
    parser.add_argument("--width", type=int, default=128, help="as for train.py")
    parser.add_argument("--depth", type=int, default=2, help="as for train.py")
    parser.add_argument("--heads", type=int, default=8, help="as for train.py")
    parser.add_argument("--dropout", type=float, default=0.1, help="as for train.py")
    args = parser.parse_args(words)
    data = dataset.read(args.data)
    network = model.build(data, args)  # outside of any strategy
    network.load_weights(args.weights)
    return oarlock.export(
        translator.Translator(network, data.vocabulary_file, args.beams), kind="text", step=args.step
    )


if __name__ == "__main__":
    print(main())
