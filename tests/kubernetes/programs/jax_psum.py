"""Written for jax.distributed: initialize() without arguments and a sum over processes, nothing of ours."""

import jax
import jax.numpy as jnp

jax.distributed.initialize()
rank, world = jax.process_index(), jax.process_count()
total = jax.pmap(lambda mine: jax.lax.psum(mine, "all"), axis_name="all")(jnp.array([rank + 1.0]))
print(f"rank {rank} of {world}: sum {float(total[0]):.0f}")
