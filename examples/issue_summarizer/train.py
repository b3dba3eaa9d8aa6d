"""Train a small transformer to write the title of an issue: on mirrored workers, parameter servers, or alone.

    oarlock run examples/issue_summarizer                    2 workers in step, evaluator
    oarlock run --chief --workers 2 --ps 1 examples/issue_summarizer    under parameter servers
    python ingest.py && python train.py                      one process, with no launcher at all

A step is one batch in all three. Which pairs it holds depends only on the seed and the step, so training
resumes at any step without an iterator to save; on mirrored workers, with the same weights to the last bit.
"""

from __future__ import annotations

import argparse
import math
import time

import dataset
import export
import keras
import model
import numpy as np
import strategies
import tensorflow as tf

import oarlock

REPORT = 20  # steps between two reports


def main() -> None:
    args = arguments()
    task = oarlock.current()
    chosen = args.strategy or strategies.default()
    if chosen == "ps" and not task.is_chief:
        strategies.serve()  # runs what the chief sends until the run ends
    data = dataset.read(args.data)
    keras.utils.set_random_seed(args.seed)
    batches = oarlock.data.Batches(data.counts["train"], args.batch, seed=args.seed)
    last = args.steps or math.ceil(args.epochs * batches.steps_per_epoch)
    strategy = strategies.connect(chosen)
    with strategy.scope():
        network = model.build(data, args)
        optimizer = adam(args.lr, last, is_shared=chosen == "ps")
        optimizer.build(network.trainable_variables)

    # What to keep. If there is a checkpoint, State restores everything. The evaluator uses `model`.
    state = oarlock.State(model=network, optimizer=optimizer)
    strategy.prepare(lambda: data.whole("train"), train_step_of(network, optimizer, args.batch))
    rate = Rate(args.batch, state.step)
    for step in state.steps(last, save=args.save, keep=args.keep, batches=batches):
        strategy.train(batches, step)
        made = step + 1
        if made % REPORT == 0 or made % args.save == 0 or made == last:
            loss = strategy.loss()  # waits until all steps so far are done
            if not math.isfinite(loss):  # before it is saved
                raise SystemExit(f"the loss is {loss} at step {made}: try a lower --lr")
            state.report(loss=loss, pairs_per_second=rate.until(made))

    if task.is_chief:
        alone = model.build(data, args)
        alone.set_weights(network.get_weights())  # or parameter servers would write it, on their machines
        if args.weights:
            np.savez(args.weights, *alone.get_weights())
        version = export.export_model(alone, data, args.known, args.beams)
        print(f"the model is in {version}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small transformer that writes titles")
    parser.add_argument("--strategy", choices=["one", "mirrored", "ps"], help="default: by the roles")
    parser.add_argument("--data", default=str(oarlock.current().data), help="what ingest.py wrote")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--steps", type=int, help="train so many steps, and no epochs")
    parser.add_argument("--batch", type=int, default=128, help="pairs in a step, of all workers together")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate at its highest; falls to 0")
    parser.add_argument("--save", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="the newest checkpoints to keep")
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument("--width", type=int, default=128, help="numbers in the vector of a word")
    parser.add_argument("--depth", type=int, default=2, help="layers of the encoder, and of the decoder")
    parser.add_argument("--beams", type=int, default=4, help="beginnings that the exported beam search keeps")
    parser.add_argument("--known", type=int, default=10000, help="pairs that the exported search knows")
    parser.add_argument("--weights", help="a file (.npz) for the weights, to compare runs")
    return parser.parse_args()


def adam(lr: float, last: int, is_shared: bool) -> keras.optimizers.Optimizer:
    """With a learning rate that rises for a tenth of the steps, then falls to 0."""
    rise = max(1, last // 10)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, max(1, last - rise), warmup_target=lr, warmup_steps=rise
    )
    # Workers on parameter servers update the two averages one after the other: with a small epsilon, a
    # worker that reads between the two takes an enormous step.
    return keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-3 if is_shared else 1e-7)


def train_step_of(
    network: model.Summarizer, optimizer: keras.optimizers.Optimizer, batch: int
) -> strategies.Step:
    """A function that trains on the `chosen` pairs and returns the sum and number of its losses."""

    def train_step(bodies: tf.Tensor, titles: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            total, count = model.losses(network, tf.gather(bodies, chosen), tf.gather(titles, chosen))
            # Divided by the batch of all workers: the optimizer adds up the gradients of those in the step.
            loss = total / batch
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return tf.stack([total, count])

    return train_step


class Rate:
    """Pairs per second since the last call."""

    def __init__(self, batch: int, step: int) -> None:
        self.batch, self.step, self.since = batch, step, time.monotonic()

    def until(self, step: int) -> float:
        now = time.monotonic()
        rate = (step - self.step) * self.batch / (now - self.since)
        self.step, self.since = step, now
        return round(rate, 1)


if __name__ == "__main__":
    main()
