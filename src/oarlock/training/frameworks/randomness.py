"""Where a task's random numbers come from: its own at the start, and a function of the step inside `State`.

At the start. A fork has copies of the zygote's generators, so all ranks and generations would draw the same
numbers: each task gets new ones. With `seed:` in the job they follow from the seed and from who the task
is, also in a library that the program imports later; without it they come from the kernel. Nothing is
imported for it. What asks the kernel itself never follows from `seed:` (`secrets`, `uuid`,
`numpy.random.default_rng()`, TensorFlow's global generator), nor do JAX' keys, which are the program's own.
The hash seed of `str` stays the zygote's: the same order of sets on all ranks does no harm.

In a step. What it draws does not depend on what was drawn before it. So there is no random state to save, a
resumed run draws what the uninterrupted one would have drawn, and any number of workers may go on from a
checkpoint. Keras' seed generators are variables and saved as such.
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

_tensorflow_seed: int | None = None  # the one that we have set, different on each rank


def begin(seed: int | None, task: str) -> None:
    """Before the program runs, in a fork or in a process of its own. `task` tells it from all others."""
    source = os.urandom(32) if seed is None else f"oarlock {seed} {task}".encode()
    random.seed(_number(source, b"random"))
    for library, give in _LIBRARIES.items():
        action = partial(give, _number(source, library.encode()))
        if seed is not None:
            import_hooks.when_imported(library, action)
        elif library in sys.modules and library != "tensorflow":  # TensorFlow has drawn nothing before a fork
            action(sys.modules[library])


def is_ours(seed: Any) -> bool:
    """Whether TensorFlow's global seed is the one that `begin` has set: no two ranks have the same."""
    return seed is not None and seed == _tensorflow_seed


def seed(base: int, step: int, rank: int) -> None:
    """Python's, NumPy's and torch's own generators, each rank's different from the others'."""
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
    """GPUs get it when they are first used."""
    torch.manual_seed(number)


def _seed_tensorflow(number: int, tensorflow: ModuleType) -> None:
    """Keras draws its seeds from `random`."""
    global _tensorflow_seed
    _tensorflow_seed = number >> 1
    tensorflow.random.set_seed(_tensorflow_seed)


def _seed_sympy(number: int, sympy_random: ModuleType) -> None:
    """torch._dynamo imports it, and it has generators of its own."""
    sympy_random.seed(number)


_LIBRARIES: dict[str, Callable[[int, ModuleType], None]] = {
    "numpy.random": _seed_numpy,
    "torch": _seed_torch,
    "tensorflow": _seed_tensorflow,
    "sympy.core.random": _seed_sympy,
}
