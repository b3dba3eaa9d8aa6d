"""Copies tensors from GPUs into shared memory while the next step already computes.

The step waits only for a copy on the GPU itself (10 GB: 5 ms). Threads take that over, on a separate stream
and through pinned memory. If the GPU has no room for the copy, the step waits for them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.tensors import pinned_memory
from oarlock.training.tensors.tensor_bytes import Leaf

_SPARE = 0.05  # share of a GPU's memory that copies leave free
# GPUs that had no room after all: what torch keeps is in pieces, and each failure makes it give them all up.
_full: set[Any] = set()

Place = tuple[int, int]


@dataclass(frozen=True)
class GpuCopies:
    """What is still to be taken over: for each GPU, bytes there and their places, and the stream for that."""

    names: tuple[str, ...]
    parts: list[tuple[Any, list[tuple[Place, Any]]]]
    buffer: Buffer

    def wait(self) -> None:
        """Take all bytes over into the shared memory. Raises RuntimeError if a GPU fails."""
        for stream, read in self.parts:
            _take_over(stream, read, self.buffer)
        self.parts.clear()  # frees the memory on the GPUs


def begin(leaves: Mapping[str, Leaf], places: Mapping[str, Place], buffer: Buffer) -> GpuCopies:
    """Start copying the tensors that are on GPUs, as they are now."""
    torch: Any = sys.modules.get("torch")
    by_gpu: dict[Any, list[str]] = {}
    for name in sorted(leaves, key=lambda name: places[name]):
        if leaves[name].on_gpu is not None and leaves[name].shape.count:
            by_gpu.setdefault(leaves[name].on_gpu.device, []).append(name)
    parts = []
    for device, names in by_gpu.items():
        with torch.cuda.device(device):
            tensors = {name: leaves[name].on_gpu for name in names}
            parts += _begin_on(torch, device, tensors, places, buffer)
    return GpuCopies(tuple(name for names in by_gpu.values() for name in names), parts, buffer)


def _begin_on(
    torch: Any, device: Any, tensors: Mapping[str, Any], places: Mapping[str, Place], buffer: Buffer
) -> list[tuple[Any, list[tuple[Place, Any]]]]:
    size = sum(end - begin for begin, end in (places[name] for name in tensors))
    read = _staged_with_room(torch, device, tensors, places, size)
    has_room = read is not None
    read = _as_they_are(torch, tensors, places) if read is None else read
    copying = torch.cuda.Stream(device)
    copying.wait_stream(torch.cuda.current_stream(device))
    if has_room:
        return [(copying, read)]
    _take_over(copying, read, buffer)
    return []


def _staged_with_room(
    torch: Any, device: Any, tensors: Mapping[str, Any], places: Mapping[str, Place], size: int
) -> list[tuple[Place, Any]] | None:
    """`_staged`, if the GPU has room for that."""
    free, total = torch.cuda.mem_get_info(device)
    # torch keeps freed memory, that of the last save's copy among it.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device in _full or free - size <= _SPARE * total:
        return None
    try:
        return _staged(torch, tensors, places, size)
    except torch.cuda.OutOfMemoryError:
        _full.add(device)
        return None


def _staged(
    torch: Any, tensors: Mapping[str, Any], places: Mapping[str, Place], size: int
) -> list[tuple[Place, Any]]:
    """One copy of all tensors on the GPU, in the order of their places, so that few copies leave it."""
    memory = torch.empty(size, dtype=torch.uint8, device=next(iter(tensors.values())).device)
    runs: list[tuple[Place, Any]] = []
    there, at, start = [], 0, 0
    for name, tensor in tensors.items():
        begin, end = places[name]
        length = end - begin
        there.append(memory[at : at + length].view(tensor.dtype).view(tensor.shape))
        if runs and runs[-1][0][1] == begin:
            runs[-1] = ((runs[-1][0][0], end), memory[start : at + length])
        else:
            start = at
            runs.append(((begin, end), memory[at : at + length]))
        at += length
    torch._foreach_copy_(there, [tensor.detach() for tensor in tensors.values()])
    return runs


def _as_they_are(
    torch: Any, tensors: Mapping[str, Any], places: Mapping[str, Place]
) -> list[tuple[Place, Any]]:
    plain = {
        name: tensor.detach().resolve_conj().resolve_neg().contiguous() for name, tensor in tensors.items()
    }
    return [(places[name], tensor.reshape(-1).view(torch.uint8)) for name, tensor in plain.items()]


def _take_over(stream: Any, read: list[tuple[Place, Any]], buffer: Buffer) -> None:
    """Copy bytes from a GPU, piece by piece in several threads: a processor copies slower than a GPU."""
    torch: Any = sys.modules["torch"]
    pieces = list(_pieces(read))
    with torch.cuda.stream(stream):  # the thread's own GPU may be another
        memory = pinned_memory.allocate(torch)

    def take(number: int) -> None:
        half, earlier = 0, None
        with torch.no_grad(), torch.cuda.stream(stream):
            for at, data in pieces[number :: pinned_memory.THREADS]:
                staged = memory[number, half, : len(data)]
                staged.copy_(data, non_blocking=True)
                coming = stream.record_event(), at, staged
                _store(earlier, buffer)  # while the GPU fills this half
                half, earlier = 1 - half, coming
            _store(earlier, buffer)

    if memory is None:
        with torch.no_grad(), torch.cuda.stream(stream):
            for (begin, end), data in read:
                torch.frombuffer(buffer.view(begin, end), dtype=torch.uint8).copy_(data)
        return
    with ThreadPoolExecutor(pinned_memory.THREADS, "oarlock-copy") as pool:
        list(pool.map(take, range(pinned_memory.THREADS)))


def _store(come: tuple[Any, int, Any] | None, buffer: Buffer) -> None:
    if come is not None:
        event, at, staged = come
        event.synchronize()
        ctypes.memmove(buffer.address + at, staged.data_ptr(), len(staged))


def _pieces(read: list[tuple[Place, Any]]) -> Iterator[tuple[int, Any]]:
    """Where each piece belongs, and its bytes on the GPU."""
    for (begin, end), data in read:
        for at in range(begin, end, pinned_memory.PIECE):
            yield at, data[at - begin : min(at + pinned_memory.PIECE, end) - begin]
