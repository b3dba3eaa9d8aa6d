"""Arrays of JAX that are on an NVIDIA GPU come over by the driver; the driver is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.cuda_library import CudaLibrary

PROGRAM = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np
from oarlock.checkpoints import safetensors
from oarlock.system.gpus import cuda_driver
from oarlock.training.saving import jax_copy
from oarlock.training.tensors import tensor_bytes
from oarlock.training.saving.shared_buffer import Buffer

tensor_bytes._is_on_cpu = lambda array: False
cuda_driver.open_contexts([0, 1])
mesh = jax.sharding.Mesh(jax.devices(), "x")
placed = lambda *axes: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
arrays = {
    "matrix": jnp.arange(12.0).reshape(3, 4),
    "half": jnp.arange(5, dtype=jnp.bfloat16),
    "number": jnp.int32(7),
    "empty": jnp.zeros((0, 3)),
    "replicated": jax.device_put(jnp.arange(6.0), placed()),
    "sharded": jax.device_put(jnp.arange(8.0), placed("x")),
}
leaves = {name: tensor_bytes.leaf(array) for name, array in arrays.items()}
places = safetensors.places({name: leaf.shape for name, leaf in leaves.items()})
buffer = Buffer(max(end for _, end in places.values()))
buffer.settle()
copies = jax_copy.begin(leaves, places, buffer)
assert set(copies.names) == set(arrays)
copies.wait()
for name, array in arrays.items():
    assert bytes(buffer.view(*places[name])) == np.asarray(array).tobytes(), name
"""


def test_the_driver_copies_what_is_in_one_place_and_in_order(cuda_library: CudaLibrary) -> None:
    calls = _calls(cuda_library)
    assert calls.count("copied") == 4, "all but the sharded one, which NumPy joins, and the empty one"


def test_a_driver_that_finds_something_else_is_asked_once(cuda_library: CudaLibrary) -> None:
    calls = _calls(cuda_library, OARLOCK_TEST_WRONG_COPIES="1")
    assert calls.count("copied") == 1


def _calls(library: CudaLibrary, **env: str) -> list[str]:
    """What the program had the driver do. It compares all bytes itself."""
    words = [sys.executable, "-c", PROGRAM]
    environ = {**os.environ, **library.env, **env}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return library.calls.read_text().splitlines()
