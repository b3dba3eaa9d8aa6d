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
from oarlock.system.gpus import cuda_driver
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.tensors.tensor_bytes import Leaf, write_array

_SPARE = 0.05  # share of a device's memory that copies leave free
_TRIED = 1 << 20  # bytes that NumPy copies as well, before the driver is trusted
_SMALL = 16 << 20  # bytes of an array that NumPy copies in no time


@dataclass(frozen=True)
class JaxCopies:
    """Copies on the devices, and where they belong."""

    names: tuple[str, ...]
    arrays: list[Any]  # in the order of the names
    places: Mapping[str, tuple[int, int]]
    buffer: Buffer

    def wait(self) -> None:
        """Take all bytes over into the shared memory. Raises RuntimeError if a device fails."""
        for name in reversed(self.names):  # the smallest first; each is freed before the next
            _take_over(self.arrays.pop(), self.places[name], self.buffer)


def begin(leaves: Mapping[str, Leaf], places: Mapping[str, tuple[int, int]], buffer: Buffer) -> JaxCopies:
    """Start copying the arrays that are on accelerators, as they are now; none of them without room."""
    largest_first = sorted(leaves.items(), key=lambda item: -item[1].shape.bytes)
    found = {name: leaf.on_accelerator for name, leaf in largest_first if leaf.on_accelerator is not None}
    if not found or not _have_room(found.values()):
        return JaxCopies((), [], places, buffer)
    jax: Any = sys.modules["jax"]
    arrays = list(found.values())
    copied = jax.device_put(arrays, [array.sharding for array in arrays], may_alias=False)
    return JaxCopies(tuple(found), copied, places, buffer)


class _Driver:
    """Whether the driver finds what NumPy finds: a JAX that keeps its arrays in another way must not spoil a
    checkpoint."""

    compared = 0  # bytes
    is_wrong = False


def _take_over(array: Any, place: tuple[int, int], buffer: Buffer) -> None:
    np: Any = sys.modules["numpy"]
    (begin, end), number = place, _cuda_gpu(array)
    if number is None or begin == end or _Driver.is_wrong:
        write_array(np.asarray(array), buffer.view(begin, end))
        return
    # Not by NumPy: that holds up the program for 0.4 s for each 600 MB, and takes as much memory.
    whole = array.addressable_data(0).block_until_ready()
    cuda_driver.copy_from(number, whole.unsafe_buffer_pointer(), buffer.address + begin, end - begin)
    if _Driver.compared < _TRIED and end - begin <= _SMALL:
        _Driver.compared += end - begin
        _Driver.is_wrong = np.asarray(array).tobytes() != buffer.view(begin, end)
        if _Driver.is_wrong:
            write_array(np.asarray(array), buffer.view(begin, end))


def _cuda_gpu(array: Any) -> int | None:
    """The number of an NVIDIA GPU that has all of the array, in the order of its indexes; else None."""
    layout = getattr(getattr(array, "format", None), "layout", None)
    in_order = getattr(layout, "major_to_minor", None) == tuple(range(array.ndim))
    if not in_order or not array.is_fully_replicated:
        return None
    number = getattr(array.addressable_shards[0].device, "local_hardware_id", None)
    return number if number in cuda_driver.contexts() else None


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
