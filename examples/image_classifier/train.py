"""Train a small residual network on pictures: under parameter servers, on mirrored workers, or alone.

    oarlock run examples/image_classifier                  1 chief, 2 workers, 2 parameter servers, evaluator
    oarlock run examples/image_classifier/mirrored.yaml    2 workers in step, evaluator
    python ingest.py && python train.py                    one process, with no launcher at all

--strategy ps, mirrored or one selects how; the default fits the roles of the job.

A step is one batch in all three. Which pictures it holds, and how they are mirrored and shifted, depends only
on the seed and the step, so training resumes at any step without an iterator to save.
"""

from __future__ import annotations

import argparse
import math
import time

import keras
import model
import records
import strategies
import tensorflow as tf

import oarlock

AVERAGE = 20  # steps between two updates of the moving average


def main() -> None:
    args = arguments()
    task = oarlock.current()
    chosen = args.strategy or strategies.default()
    if chosen == "ps" and not task.is_chief:
        strategies.serve()  # runs what the chief sends until the run ends
    dataset = records.read(args.data)
    keras.utils.set_random_seed(args.seed)
    batches = oarlock.data.Batches(dataset.counts["train"], args.batch, seed=args.seed)
    last = args.steps or math.ceil(args.epochs * batches.steps_per_epoch)
    strategy = strategies.connect(chosen)
    with strategy.scope():
        network, averaged = (
            model.build(dataset.shape, len(dataset.labels), args.width, args.blocks, strategy.is_synchronous)
            for _ in range(2)
        )
        averaged.set_weights(network.get_weights())
        optimizer = optimizer_of(args, last)
        optimizer.build(network.trainable_variables)

    # What to keep. If there is a checkpoint, State restores everything. The evaluator uses `averaged`.
    state = oarlock.State(model=network, optimizer=optimizer, averaged=averaged)
    average = tf.function(lambda decay: model.move_average(averaged, network, decay))
    strategy.prepare(lambda: dataset.whole("train"), train_step_of(network, optimizer, args))
    rate = Rate(args.batch, state.step)
    for step in state.steps(last, save=args.save, keep=args.keep, batches=batches):
        strategy.train(batches, step)
        made = step + 1
        if made % AVERAGE == 0 or made % args.save == 0 or made == last:
            loss = strategy.loss()  # waits until all steps so far are done
            if not math.isfinite(loss):  # before it is saved
                raise SystemExit(f"the loss is {loss} at step {made}: try a lower --lr")
            average(tf.constant(decay_at(made // AVERAGE, args.average**AVERAGE)))
            state.report(loss=loss, examples_per_second=rate.until(made))

    if task.is_chief:
        alone = model.build(dataset.shape, len(dataset.labels), args.width, args.blocks)
        alone.set_weights(averaged.get_weights())  # or parameter servers would write it, on their machines
        print(f"the model is in {model.export(alone, dataset.labels)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small residual network for pictures")
    parser.add_argument("--strategy", choices=["one", "mirrored", "ps"], help="default: by the roles")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--steps", type=int, help="train so many steps, and no epochs")
    parser.add_argument("--batch", type=int, default=128, help="pictures in a step, of all workers together")
    parser.add_argument("--optimizer", choices=["adam", "rmsprop"], default="adam")
    parser.add_argument("--lr", type=float, help="learning rate at the start; default: 0.004, RMSProp 0.045")
    parser.add_argument("--average", type=float, default=0.99, help="of the weights: what a step keeps of it")
    parser.add_argument("--save", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="the newest checkpoints to keep")
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage; see model.py")
    parser.add_argument("--blocks", type=int, default=1, help="residual blocks of each stage")
    return parser.parse_args()


def optimizer_of(args: argparse.Namespace, last: int) -> keras.optimizers.Optimizer:
    """With a learning rate that falls to 0; for RMSProp, as Inception was trained, to a hundredth."""
    schedules = keras.optimizers.schedules
    if args.optimizer == "adam":
        # Workers on parameter servers update the two averages one after the other: with the default epsilon
        # of 1e-7, a worker that reads between the two takes an enormous step.
        return keras.optimizers.Adam(schedules.CosineDecay(args.lr or 0.004, last), epsilon=1e-3)
    lr = schedules.ExponentialDecay(args.lr or 0.045, last, 0.01)
    return keras.optimizers.RMSprop(lr, rho=0.9, momentum=0.9, epsilon=1.0)


def decay_at(update: int, decay: float) -> float:
    """Less at first: otherwise the average would remember the random initial weights."""
    return min(decay, (1 + update) / (10 + update))


def train_step_of(
    network: keras.Model, optimizer: keras.optimizers.Optimizer, args: argparse.Namespace
) -> strategies.Step:
    """A function that trains on the `chosen` pictures and returns its part of the batch's loss."""

    def train_step(images: tf.Tensor, labels: tf.Tensor, chosen: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        picked = records.augmented(images, chosen, seed=tf.stack([args.seed, step]))
        with tf.GradientTape() as tape:
            scores = network(picked, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(
                tf.gather(labels, chosen), scores, from_logits=True
            )
            # Divided by the batch of all workers: the optimizer adds up the gradients of those in the step.
            loss = tf.reduce_sum(losses) / args.batch
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return loss

    return train_step


class Rate:
    """Examples per second since the last call."""

    def __init__(self, batch: int, step: int) -> None:
        self.batch, self.step, self.since = batch, step, time.monotonic()

    def until(self, step: int) -> float:
        now = time.monotonic()
        rate = (step - self.step) * self.batch / (now - self.since)
        self.step, self.since = step, now
        return round(rate, 1)


if __name__ == "__main__":
    main()
