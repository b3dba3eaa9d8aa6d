"""Write text with a trained model:  python sample.py FOLDER --prompt "Return the"

FOLDER is a version of the model: the folder `model/1` of a run.
"""

from __future__ import annotations

import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np
from model import Config, Weights, load, scores_of


def main() -> None:
    parser = argparse.ArgumentParser(description="Write text with a trained model")
    parser.add_argument("folder", help="where the model is: the folder `model/1` of a run")
    parser.add_argument("--prompt", default="\n", help="how the text begins")
    parser.add_argument("--length", type=int, default=600, help="bytes to write")
    parser.add_argument("--temperature", type=float, default=0.7, help="0: always the likeliest byte")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sys.stdout.write(args.prompt)
    print(write(*load(args.folder), args.prompt, args.length, args.temperature, args.seed))


def write(
    weights: Weights,
    config: Config,
    prompt: str = "\n",
    length: int = 600,
    temperature: float = 0.7,
    seed: int = 0,
) -> str:
    """What the model writes after `prompt`: the same text for the same seed."""

    @jax.jit
    def next_byte(weights: Weights, window: jax.Array, last: int, key: jax.Array) -> jax.Array:
        scores = scores_of(weights, window[None], config)[0, last]
        if temperature:
            return jax.random.categorical(key, scores / temperature)
        return jnp.argmax(scores)

    written = list(prompt.encode()) or [10]
    window = np.zeros(config.context, np.uint8)  # always this size, so that it compiles once
    for number in range(length):
        seen = written[-config.context :]
        window[: len(seen)] = seen
        key = jax.random.fold_in(jax.random.key(seed), number)
        written.append(int(next_byte(weights, window, len(seen) - 1, key)))
    return bytes(written[-length:]).decode(errors="replace")


if __name__ == "__main__":
    main()
