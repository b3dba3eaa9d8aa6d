"""JAX over two processes, data parallel, with Dropout from a key that is kept and folded with the step.

train STEPS SAVE PAUSE: saved every so many steps, a pause of so many seconds in each.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from diary import Diary
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import oarlock

total, save, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
task = oarlock.current()
jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("ranks",))
everywhere, spread = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("ranks"))


def place(array, how=everywhere):
    return jax.make_array_from_process_local_data(how, array)


@jax.jit
def train(params, momentum, x, y, key):
    def loss(params):
        hidden = jax.nn.gelu(x @ params["in"])
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape)
        return jnp.mean((hidden @ params["out"] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - 1e-4 * m, params, momentum), momentum, value


random = np.random.RandomState(0)
x = random.randn(240, 16).astype("float32")
y = x.sum(1, keepdims=True)
params = {
    "in": place(random.randn(16, 32).astype("float32")),
    "out": place(random.randn(32, 1).astype("float32")),
}
momentum = jax.tree.map(lambda one: place(np.zeros(one.shape, "float32")), params)

batches = oarlock.data.Batches(240, 24, seed=3)
state = oarlock.State(params=params, momentum=momentum, key=jax.random.key(3))
diary = Diary()
for step in state.steps(total, save=save, keep=1000, batches=batches):
    mine = batches.mine(step)
    diary.began(step, mine)
    key = jax.random.fold_in(state.key, step)
    state.params, state.momentum, loss = train(
        state.params, state.momentum, place(x[mine], spread), place(y[mine], spread), key
    )
    time.sleep(pause)
    diary.made(step, loss)
    state.report(loss=loss)

if task.is_chief:
    task.model.mkdir(parents=True, exist_ok=True)
    np.savez(
        task.model / "final.npz",
        *[np.asarray(one.addressable_data(0)) for one in jax.tree.leaves(state.params)],
    )
