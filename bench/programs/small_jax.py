"""JAX in one process, with many small compilations: each shape is compiled on its own."""

from __future__ import annotations

import jax.numpy as jnp
from marks import Marks, arguments

_SHAPES = 50  # four compilations each

given = arguments()
marks = Marks(given, 0)
total = sum(float((jnp.ones((size,)) * 2 + size).sum()) for size in range(1, _SHAPES + 1))
for _ in marks.steps(given.steps):
    total += 1
