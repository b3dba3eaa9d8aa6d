"""Train a Transformer to translate Portuguese to English with Keras `fit`, on one worker or many.

    oarlock run examples/transformer                         2 workers in step, evaluator
    oarlock run --set env.KERAS_BACKEND=jax examples/transformer    or, with -n 1, torch
    python ingest.py && python train.py                      one process, with no launcher at all

Which pairs a step holds depends only on the seed and the step: after a failure, training resumes in the
middle of an epoch, from the last checkpoint, and ends with the same weights, to the last bit.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from typing import Any

import backends
import dataset
import export
import keras
import model
import numpy as np

import oarlock


def main() -> None:
    args = arguments()
    task = oarlock.current()
    data = dataset.read(args.data)
    keras.utils.set_random_seed(args.seed)  # the same initial weights on every worker
    numbers = data.numbers("train")
    buckets = dataset.Buckets(numbers.lengths(), args.tokens, seed=args.seed)
    epochs, steps = (1, args.steps) if args.steps else (args.epochs, buckets.steps_per_epoch)
    workers = backends.connect()
    with workers.scope():
        network = model.build(data, args)
        network.compile(
            optimizer=keras.optimizers.Adam(
                model.WarmUp(args.width, args.warmup, args.lr), beta_2=0.98, epsilon=1e-9
            ),
            loss=model.Surprise(args.smoothing),
            weighted_metrics=[model.accuracy()],
        )

    def publish() -> None:
        """Every worker calls this before the same step; the weights are the same on all."""
        if task.is_chief:
            trained = int(network.optimizer.iterations.numpy())
            print(f"the model of step {trained} is in {export.export_model(network, data, args, trained)}")

    # Steps, loss and time left for `oarlock ps`, and checkpoints. If there is one, it is restored now.
    callbacks = oarlock.keras.callbacks(
        network,
        [Finite()],
        save=args.save,
        keep=args.keep,
        export=publish,  # a model to try during training; at the end, the trained one
        export_every=args.export_every or 3 * steps,  # it takes 9 s
    )

    def batches() -> Iterator[dataset.Batch]:
        for step in itertools.count(callbacks.step):
            yield numbers.batch(*buckets.mine(step))

    network.fit(
        workers.feed(batches),
        initial_epoch=callbacks.epoch,
        epochs=epochs,
        steps_per_epoch=steps,
        shuffle=False,  # `buckets` has already shuffled
        verbose=2 if task.is_chief else 0,
        callbacks=callbacks,
    )

    if task.is_chief and args.weights:
        np.savez(args.weights, *network.get_weights())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A Transformer that translates")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, help="train so many steps, and no epochs")
    parser.add_argument(
        "--tokens", type=int, default=3072, help="of a step and language, of all workers together"
    )
    parser.add_argument("--lr", type=float, default=0.5, help="to multiply the learning rate with")
    parser.add_argument("--warmup", type=int, default=400, help="steps for which the learning rate rises")
    parser.add_argument("--smoothing", type=float, default=0.1, help="of the labels")
    parser.add_argument("--width", type=int, default=128, help="numbers in the vector of a piece")
    parser.add_argument("--depth", type=int, default=2, help="layers of the encoder, and of the decoder")
    parser.add_argument("--heads", type=int, default=8, help="parts that a layer's attention has")
    parser.add_argument("--dropout", type=float, default=0.1, help="share that each layer leaves out")
    parser.add_argument("--save", type=how_often, default="epoch", help='steps, "30s", "5m" or "epoch"')
    parser.add_argument("--keep", type=int, default=3, help="the newest checkpoints, and models, to keep")
    parser.add_argument("--export-every", type=int, metavar="STEPS", help="instead of every three epochs")
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument("--beams", type=int, default=4, help="beginnings that the exported search keeps")
    parser.add_argument("--weights", help="a file (.npz) for the weights, to compare runs")
    return parser.parse_args()


def how_often(text: str) -> int | str:
    return int(text) if text.isdigit() else text


class Finite(keras.callbacks.Callback):
    """Stops training that has diverged, before it is exported."""

    async_safe = True  # it only looks at epochs: Keras need not wait for every step's loss

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not math.isfinite(logs["loss"]):
            raise SystemExit(f"the loss is {logs['loss']} in epoch {epoch + 1}: try a lower --lr")


if __name__ == "__main__":
    main()
