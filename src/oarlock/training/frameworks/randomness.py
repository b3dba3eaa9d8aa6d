"""Seed a task's random generators: differently for each task at the start, and by step inside `State`.

At the start: a fork has copies of the zygote's generators, so all ranks and generations would draw the same
numbers. Each task gets new seeds. With `seed:` in the job they derive from that seed and the task's identity,
even in a library that the program imports later; without it they come from the kernel. Nothing is imported
for this. Anything that draws from the kernel itself ignores `seed:` (`secrets`, `uuid`,
`numpy.random.default_rng()`, TensorFlow's global generator), and so do JAX keys, which the program makes.
The hash seed of `str` stays the zygote's: the same order of sets on all ranks does no harm.

In a step: what a step draws does not depend on earlier steps. So there is no random state to save, a
resumed run draws what an uninterrupted run would have drawn, and any number of workers can resume from a
checkpoint. Keras's seed generators are variables and are saved as such.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from functools import partial
from types import ModuleType
from typing import Any, Callable

from oarlock.training.frameworks import import_hooks

_tensorflow_seed: int | None = None  # set by `begin`, different on each rank


def begin(seed: int | None, task: str) -> None:
    """Seed before the program runs, in a fork or in a fresh process. `task` identifies this exact process."""
    source = os.urandom(32) if seed is None else f"oarlock {seed} {task}".encode()
    random.seed(_number(source, b"random"))
    for library, set_seed in _LIBRARIES.items():
        action = partial(set_seed, _number(source, library.encode()))
        if seed is not None:
            import_hooks.when_imported(library, action)
        elif library in sys.modules and library != "tensorflow":  # TensorFlow draws nothing before a fork
            action(sys.modules[library])


def is_ours(seed: Any) -> bool:
    """Whether TensorFlow's global seed is the one that `begin` set, different on each rank."""
    return seed is not None and seed == _tensorflow_seed


def seed(base: int, step: int, rank: int) -> None:
    """Seed the generators of Python, NumPy and torch for a step, differently on each rank."""
    number = _number(f"{base}/{step}/{rank}".encode())
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number & 0x7FFFFFFFFFFFFFFF)


def _number(source: bytes, key: bytes = b"") -> int:
    return int.from_bytes(hashlib.blake2b(source, digest_size=8, key=key).digest(), "little")


def _seed_numpy(number: int, numpy_random: ModuleType) -> None:
    numpy_random.seed([number & 0xFFFFFFFF, number >> 32])


def _seed_torch(number: int, torch: ModuleType) -> None:
    """torch seeds GPUs when they are first used."""
    torch.manual_seed(number)


def _seed_tensorflow(number: int, tensorflow: ModuleType) -> None:
    """Keras draws its own seeds from `random`."""
    global _tensorflow_seed
    _tensorflow_seed = number >> 1
    tensorflow.random.set_seed(_tensorflow_seed)


def _seed_sympy(number: int, sympy_random: ModuleType) -> None:
    """torch._dynamo imports sympy, which has its own generators."""
    sympy_random.seed(number)


_LIBRARIES: dict[str, Callable[[int, ModuleType], None]] = {
    "numpy.random": _seed_numpy,
    "torch": _seed_torch,
    "tensorflow": _seed_tensorflow,
    "sympy.core.random": _seed_sympy,
}
