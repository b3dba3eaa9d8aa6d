"""Random numbers of every library: each task's own on every rank, in every generation, however it starts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.gangs import Gang, is_running, until_gone
from tests.support.soaking import cases

# In a fork, before the program has imported anything: what the zygote holds.
LOOK = """
import random, sys, types
kinds = [random.Random]
if "numpy.random" in sys.modules:
    numpy = sys.modules["numpy.random"]
    kinds += [numpy.Generator, numpy.BitGenerator, numpy.RandomState]
if "torch" in sys.modules:
    kinds.append(sys.modules["torch"].Generator)
held = {}
for name, module in sorted(sys.modules.items()):
    for key, value in list(vars(module).items()) if isinstance(module, types.ModuleType) else []:
        if isinstance(value, tuple(kinds)) and not isinstance(value, random.SystemRandom):
            held.setdefault(id(value), f"{name}.{key}")
"""
PLAIN = """
import json, multiprocessing, os, pathlib, random, secrets, ssl, sys, tempfile, threading, time, uuid
import numpy as np
derived = {"random": random.random(), "numpy": np.random.rand()}
fresh = {
    "numpy, new": np.random.default_rng().random(),
    "uuid1": str(uuid.uuid1()),
    "uuid4": str(uuid.uuid4()),
    "tempfile": tempfile.mktemp(),
    "secrets": secrets.token_hex(),
    "ssl": ssl.RAND_bytes(8).hex(),
    "multiprocessing": multiprocessing.current_process().authkey.hex(),
}
assert threading.main_thread().native_id == os.getpid(), "that of the process that was forked"
"""
END = """
print("drawn", json.dumps([derived, fresh, sorted(held.values())]))
said = pathlib.Path(os.environ["CHECKPOINT_DIR"]) / os.environ["OARLOCK_GENERATION"]
said.mkdir(exist_ok=True)
(said / os.environ["OARLOCK_RANK"]).touch()
while len(list(said.iterdir())) < 2:  # the first to leave would take the other with it
    time.sleep(0.01)
sys.exit(0 if os.environ["OARLOCK_GENERATION"] == sys.argv[1] else 1)
"""
TORCH = """
import torch
derived["torch"] = torch.rand(()).item()
derived["dropout"] = torch.nn.functional.dropout(torch.ones(64)).tolist()
derived["permutation"] = torch.randperm(64).tolist()
if torch.cuda.is_available():
    derived["GPU"] = torch.rand((), device="cuda").item()
"""
TENSORFLOW = """
import keras
import tensorflow as tf
derived["tensorflow"] = float(tf.random.uniform([]))
derived["shuffle"] = [int(n) for n in tf.data.Dataset.range(64).shuffle(64)]
derived["keras"] = float(keras.random.uniform([]))
derived["initializer"] = keras.initializers.GlorotUniform()((4, 4)).numpy().tolist()
derived["dropout of Keras"] = keras.layers.Dropout(0.5)(tf.ones(64), training=True).numpy().tolist()
fresh["generator"] = float(tf.random.get_global_generator().uniform([]))
"""
JAX = """
import jax
key = jax.random.key(int(derived["numpy"] * 2**31))
derived["jax"] = jax.random.uniform(key).item()
"""
PROGRAMS = {"torch": TORCH, "tensorflow": TENSORFLOW, "jax": JAX}
# These draw from `random`, and so does the import of TensorFlow, which a fork has behind it.
AFTER_IMPORTS = {"keras", "initializer", "dropout of Keras"}
# Where a library keeps a generator that `randomness` gives new numbers.
KNOWN = {"random._inst", "numpy.random.mtrand._rand", "torch.default_generator"}
KNOWN |= {"sympy.core.random.rng", "sympy.core.random._assumptions_rng"}

Draws = dict[str, Any]
Start = Callable[..., Gang]


@pytest.fixture
def kept(start: Start) -> Iterator[Start]:
    """Runs whose imports stay; at the end nobody does."""
    keepers: set[int] = set()

    def make(program: str, **fields: Any) -> Gang:
        gang = start(program, **{"warm": "5m", **fields})
        gang.until(lambda gang: gang.of("ready"), "import")
        keepers.add(gang.of("ready")[0]["keeper"])
        return gang

    yield make
    for pid in filter(is_running, keepers):
        os.kill(pid, signal.SIGTERM)
    until_gone(list(keepers))


def drawn(gang: Gang) -> list[tuple[Draws, Draws, list[str]]]:
    """Of all tasks in all generations: what follows from a seed, what never does, and its generators."""
    assert gang.end().state == "succeeded", gang.told()
    logs = sorted((gang.run.path / "logs").glob("*/worker-*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines() if " drawn [" in line]
    return [tuple(json.loads(line.partition(" drawn ")[2])) for line in lines]


def assert_all_differ(draws: list[Draws]) -> None:
    for name in draws[0]:
        assert len({str(one[name]) for one in draws}) == len(draws), (name, [one[name] for one in draws])


# JAX has no generator of its own to be given new numbers: its keys come from those of others.
@pytest.mark.parametrize("framework", cases(["torch"], soak=["tensorflow", "jax"]))
def test_every_task_draws_numbers_of_its_own(start: Start, kept: Start, framework: str) -> None:
    program = LOOK + PLAIN + PROGRAMS[framework] + END

    def run(how: Start, generations: int = 2, **fields: Any) -> Gang:
        return how(program, framework=framework, args=[str(generations)], **fields)

    warm, again = drawn(run(kept)), drawn(adopted := run(kept))
    assert "seconds" not in adopted.of("ready")[0], "the imports of the first run were not used"
    seeded, cold = drawn(run(kept, seed=7)), drawn(run(start, 1, seed=7, warm=False))

    assert [len(draws) for draws in (warm, again, seeded, cold)] == [4, 4, 4, 2]
    assert_all_differ([derived for derived, _, _ in [*warm, *again, *seeded]])
    assert_all_differ([fresh for _, fresh, _ in [*warm, *again, *seeded, *cold]])
    for (there, _, _), (here, _, _) in zip(cold, seeded):
        assert {name: there[name] for name in there.keys() - AFTER_IMPORTS}.items() <= here.items()
    assert "random._inst" in warm[0][2]
    assert set(warm[0][2]) <= KNOWN, "an import keeps a generator that `randomness` does not know"


def test_so_do_the_tasks_of_tensorflow(kept: Start) -> None:
    """Which takes long to import: once, and forked for two generations."""
    gang = kept(LOOK + PLAIN + TENSORFLOW + END, framework="tensorflow", args=["2"])
    draws = drawn(gang)
    assert len(draws) == 4
    assert_all_differ([derived for derived, _, _ in draws])
    assert_all_differ([fresh for _, fresh, _ in draws])
    assert set(draws[0][2]) <= KNOWN, "an import keeps a generator that `randomness` does not know"
