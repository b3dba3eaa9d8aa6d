"""Copies tensors from GPUs into shared memory while the next step already computes.

The step waits only for a copy on the GPU itself (10 GB: 5 ms). A separate stream copies that into pinned
memory (10 GB: 0.2 s). If the GPU has no room for the copy, the training stream waits for the separate one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.saving.shared_buffer import PIECE, Buffer
from oarlock.training.saving.tensor_bytes import Leaf

_SPARE = 0.05  # share of a GPU's memory that copies leave free

Place = tuple[int, int]


@dataclass(frozen=True)
class GpuCopies:
    """Copies in flight: the tensors that they read, and an event for each GPU."""

    sources: tuple[Any, ...]
    ends: tuple[Any, ...]

    def wait(self) -> None:
        """Wait until all bytes are in the shared memory. Raises RuntimeError if a GPU fails."""
        for end in self.ends:
            end.synchronize()


def pin(buffer: Buffer, leaves: Iterable[Leaf]) -> None:
    """Pin the memory piece by piece, as its pages are touched: a GPU copies at full speed only to pages that
    cannot move. Pinning 5 GB at once would hold up the driver, which starts kernels, for 0.23 s."""
    if not any(leaf.on_gpu is not None for leaf in leaves):
        return
    torch: Any = sys.modules["torch"]
    runtime = torch.cuda.cudart()
    pinned = []

    def register(address: int, size: int) -> None:
        if int(runtime.cudaHostRegister(address, size, 0)) == 0:
            pinned.append(address)

    def release() -> None:  # or a later allocation at the same address could not be pinned
        for address in pinned:
            runtime.cudaHostUnregister(address)

    buffer.on_touched, buffer.on_close = register, release


def begin(leaves: Mapping[str, Leaf], places: Mapping[str, Place], buffer: Buffer) -> GpuCopies:
    """Start copying the tensors that are on GPUs, as they are now."""
    torch: Any = sys.modules.get("torch")
    by_gpu: dict[Any, list[str]] = {}
    for name in sorted(leaves, key=lambda name: places[name]):
        if leaves[name].on_gpu is not None and leaves[name].shape.count:
            by_gpu.setdefault(leaves[name].on_gpu.device, []).append(name)
    sources, ends = [], []
    for device, names in by_gpu.items():
        with torch.cuda.device(device):
            read, end = _begin_on(
                torch, device, {name: leaves[name].on_gpu for name in names}, places, buffer
            )
        sources += read
        ends.append(end)
    return GpuCopies(tuple(sources), tuple(ends))


def _begin_on(
    torch: Any, device: Any, tensors: Mapping[str, Any], places: Mapping[str, Place], buffer: Buffer
) -> tuple[list[Any], Any]:
    size = sum(end - begin for begin, end in (places[name] for name in tensors))
    free, total = torch.cuda.mem_get_info(device)
    has_room = free - size > _SPARE * total
    read = _staged(torch, tensors, places, size) if has_room else _as_they_are(torch, tensors, places)
    training, copying = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    copying.wait_stream(training)
    with torch.cuda.stream(copying):
        for (begin, end), data in read:
            for piece_begin, piece_end in _pieces(begin, end):
                there = torch.frombuffer(buffer.view(piece_begin, piece_end), dtype=torch.uint8)
                there.copy_(data[piece_begin - begin : piece_end - begin], non_blocking=True)
        done = torch.cuda.Event()
        done.record(copying)
    if not has_room:
        training.wait_event(done)
    return [data for _, data in read], done


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


def _pieces(begin: int, end: int) -> Iterable[Place]:
    """A copy must not cross the border between two pinned pieces."""
    while begin < end:
        border = min(end, (begin // PIECE + 1) * PIECE)
        yield begin, border
        begin = border
