"""Copies JAX arrays from accelerators into shared memory while the next step already computes.

The step waits only for a copy on the device itself, because it may donate the arrays that it gets. A thread
then takes the copy over to the shared memory. If the device has no room for the copy, the step waits for all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.saving.tensor_bytes import Leaf, write_array

_SPARE = 0.05  # share of a device's memory that copies leave free


@dataclass(frozen=True)
class JaxCopies:
    """Copies on the devices, and where they belong."""

    names: tuple[str, ...]
    arrays: list[Any]  # in the order of the names
    places: Mapping[str, tuple[int, int]]
    buffer: Buffer

    def wait(self) -> None:
        """Take all bytes over into the shared memory. Raises RuntimeError if a device fails."""
        np: Any = sys.modules["numpy"]
        for name in reversed(self.names):  # each is freed, there and here, before the next
            write_array(np.asarray(self.arrays.pop()), self.buffer.view(*self.places[name]))


def begin(leaves: Mapping[str, Leaf], places: Mapping[str, tuple[int, int]], buffer: Buffer) -> JaxCopies:
    """Start copying the arrays that are on accelerators, as they are now; none of them without room."""
    found = {name: leaf.on_accelerator for name, leaf in leaves.items() if leaf.on_accelerator is not None}
    if not found or not _have_room(found.values()):
        return JaxCopies((), [], places, buffer)
    jax: Any = sys.modules["jax"]
    arrays = list(found.values())
    copied = jax.device_put(arrays, [array.sharding for array in arrays], may_alias=False)
    return JaxCopies(tuple(found), copied, places, buffer)


def _have_room(arrays: Iterable[Any]) -> bool:
    sizes: Counter[Any] = Counter()
    for array in arrays:
        for shard in array.addressable_shards:
            sizes[shard.device] += shard.data.nbytes
    return all(_free(device) > size for device, size in sizes.items())


def _free(device: Any) -> float:
    """Bytes that may be taken; infinite if the device does not say."""
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return float("inf") if limit is None else (1 - _SPARE) * limit - stats["bytes_in_use"]
