"""Written for jax.distributed: initialize() without arguments, nothing of ours."""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()
rank, world = jax.process_index(), jax.process_count()
total = multihost_utils.process_allgather(jnp.array([float(rank + 1)])).sum()
assert total == world * (world + 1) / 2
print(f"rank {rank} of {world}: sum {float(total):.0f}")
