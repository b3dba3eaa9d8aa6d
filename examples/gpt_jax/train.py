"""Train a small GPT on documentation with JAX, on one worker or many, and let it write some.

    oarlock run examples/gpt_jax             two workers on this machine, as job.yaml says
    oarlock run -n 4 examples/gpt_jax        four
    python train.py                          one, with no launcher at all

Every step trains on the same 24 windows of text, split among the workers. State and position are saved
every few seconds: a dead worker, a machine that is taken away or Ctrl-C cost only the steps since then, and
the result is the same to the last bit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import model
import numpy as np
import sample
import text
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import oarlock

GLOBAL_BATCH = 24  # windows of all workers together: 1, 2, 3, 4, 6, 8 and 12 of them share it equally

Moments = dict[str, model.Weights]  # of the gradients: first and second
Step = Callable[[model.Weights, Moments, jax.Array, int], tuple[model.Weights, Moments, jax.Array]]


def main() -> None:
    args = arguments()
    if args.deterministic:  # before JAX starts its GPU; a CPU gives the same bits anyway
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    task = oarlock.current()  # this task; without a launcher, the only worker
    train, held_out, about = text.load(args.data)
    batches = oarlock.data.Batches(text.count_windows(train, args.context), args.batch, seed=args.seed)
    say = print if task.is_chief else lambda *_: None
    say(about)

    if task.world > 1:
        jax.distributed.initialize()  # connects the workers
    mesh = Mesh(jax.devices(), "data")  # all workers' devices, in one row
    everywhere, in_parts = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in [(), ("data",)])

    config = model.Config(args.layers, args.width, args.heads, args.context, args.dropout)
    weights = jax.device_put(model.first_weights(config, args.seed), everywhere)
    # Everything that must survive. If this run has saved a checkpoint, State restores it here.
    state = oarlock.State(weights=weights, moments=no_moments(weights))
    say(f"{sum(array.size for array in state.weights.values()):,} weights, from step {state.step}")

    # What a step costs, so that Oarlock can show the speed and the share of the GPU in use.
    tokens = config.context * len(batches.mine(0))
    task.report(flops=config.operations * tokens, tokens_per_step=tokens)
    train_step = train_step_of(config, args)
    for step in state.steps(args.steps, save=args.save, batches=batches):
        mine = text.windows(train, args.context, batches.mine(step))
        rows = jax.make_array_from_process_local_data(in_parts, mine)  # all workers' rows, as one array
        state.weights, state.moments, loss = train_step(state.weights, state.moments, rows, step)
        state.report(loss=loss)  # sent when it is computed, a few times a second: no step waits for it
        if (step + 1) % args.show == 0:
            say(f"step {step + 1}: loss {loss:.4f}")

    if task.is_chief:
        weights = jax.device_get(state.weights)
        loss = float(test_loss(weights, config, held_out))
        folder = publish(weights, config, loss)
        print(f"loss {loss:.4f} on text it never saw, of the model in {folder}")
        print(sample.write(*model.load(folder), seed=args.seed))  # loaded as a server would


def publish(weights: model.Weights, config: model.Config, loss: float) -> Path:
    """Write a version of the model for `oarlock serve`: the weights, and the code that reads them."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        model.save(scratch, weights, config)
        version = oarlock.export(
            here / "predict.py",
            kind="completion",
            files=[here / "model.py", *Path(scratch).iterdir()],
            scores={"held_out_loss": loss},
        )
    assert version  # None on all workers but the chief
    return version


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small GPT with JAX")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=GLOBAL_BATCH, help="windows in a step, of all workers")
    parser.add_argument("--lr", type=float, default=4e-3, help="after the warm-up; it falls to a tenth")
    parser.add_argument("--warmup", type=int, default=70, help="steps until that is reached")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64, help="bytes it looks back: the size of a window")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument("--data", help="a text, by path or URL, instead of documentation")
    parser.add_argument("--save", type=how_often, default="10s", help="100 (steps), 30s or epoch")
    parser.add_argument("--show", type=int, default=100, help="print the loss every so many steps")
    parser.add_argument("--deterministic", action="store_true", help="the same bits on a GPU too; slower")
    return parser.parse_args()


def how_often(value: str) -> int | str:
    return int(value) if value.isdigit() else value


def train_step_of(config: model.Config, args: argparse.Namespace) -> Step:
    # The new weights replace the old ones in memory.
    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(
        weights: model.Weights, moments: Moments, rows: jax.Array, step: jax.Array
    ) -> tuple[model.Weights, Moments, jax.Array]:
        # Written as if for one machine. `rows` is split over all devices and the weights are on each, so JAX
        # also splits the computation and adds up what it must: the loss is that of the whole batch.
        key = jax.random.fold_in(jax.random.key(args.seed), step)  # nothing random needs saving
        loss, gradients = jax.value_and_grad(model.loss_of)(weights, rows, config, key)
        gradients = clipped(gradients, 1.0)
        weights, moments = adamw(weights, moments, gradients, step, learning_rate(step, args))
        return weights, moments, loss

    return train_step


def no_moments(weights: model.Weights) -> Moments:
    return {name: jax.tree.map(jnp.zeros_like, weights) for name in ("first", "second")}


def adamw(
    weights: model.Weights,
    moments: Moments,
    gradients: model.Weights,
    step: jax.Array,
    lr: jax.Array,
    decay: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
) -> tuple[model.Weights, Moments]:
    def first(moment: jax.Array, gradient: jax.Array) -> jax.Array:
        return beta1 * moment + (1 - beta1) * gradient

    def second(moment: jax.Array, gradient: jax.Array) -> jax.Array:
        return beta2 * moment + (1 - beta2) * gradient**2

    def moved(weight: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        move = mean / (1 - beta1 ** (step + 1)) / (jnp.sqrt(square / (1 - beta2 ** (step + 1))) + 1e-8)
        return weight - lr * move

    means = jax.tree.map(first, moments["first"], gradients)
    squares = jax.tree.map(second, moments["second"], gradients)
    # Matrices are decayed; norms are not.
    kept = {name: w if "norm" in name else w * (1 - lr * decay) for name, w in weights.items()}
    return jax.tree.map(moved, kept, means, squares), {"first": means, "second": squares}


def clipped(gradients: model.Weights, most: float) -> model.Weights:
    length = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda gradient: gradient * jnp.minimum(1, most / (length + 1e-6)), gradients)


def learning_rate(step: jax.Array, args: argparse.Namespace) -> jax.Array:
    """Linear up, cosine down: a function of the step, so there is no schedule to save."""
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    falling = 0.1 + 0.9 * 0.5 * (1 + jnp.cos(jnp.pi * done))
    return args.lr * jnp.where(step < args.warmup, (step + 1) / max(1, args.warmup), falling)


def test_loss(weights: model.Weights, config: model.Config, held_out: np.ndarray) -> float:
    loss_of = jax.jit(partial(model.loss_of, config=config))
    numbers = range(text.count_windows(held_out, config.context))
    losses = [
        loss_of(weights, rows) * len(rows)
        for start in range(0, len(numbers), 64)
        for rows in [text.windows(held_out, config.context, numbers[start : start + 64])]
    ]
    return sum(losses) / len(numbers)


if __name__ == "__main__":
    main()
