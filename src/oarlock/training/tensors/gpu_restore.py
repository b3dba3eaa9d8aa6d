"""Copies saved tensors to GPUs, several at a time through pinned memory, before torch takes them over.

The driver copies 7 GB a second from pages of a file, in one thread or in eight; threads that copy pieces into
pinned memory reach 20 (1.5 GB on an H200: 0.07 s instead of 0.2).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oarlock.training.tensors import pinned_memory
from oarlock.training.tensors.pinned_memory import PIECE, THREADS

_ALIGNED = 512  # bytes
_LARGE = 64 << 20  # bytes above which this is worth its threads and its pinned memory


class GpuRestore:
    """Tensors on GPUs that are still to be filled."""

    def __init__(self) -> None:
        self._copies: list[tuple[Any, Any]] = []

    def add(self, saved: Any, like: Any, is_new: bool) -> Any:
        """Return a tensor on the GPU of `like` that equals `saved` after `finish`: `like` or a new one. None
        if torch has to copy it, or leaves it on the CPU as it does step counts."""
        if not getattr(like, "is_cuda", False) or hasattr(like, "to_local") or like.shape != saved.shape:
            return None
        is_unfit = saved.dim() == 0 if is_new else like.dtype != saved.dtype or not like.is_contiguous()
        if is_unfit:
            return None
        target = like.new_empty(saved.shape, dtype=saved.dtype) if is_new else like
        self._copies.append((target, saved))
        return target

    def finish(self) -> None:
        """Fill all of these tensors."""
        if not self._copies:
            return  # torch may not be imported at all
        torch: Any = sys.modules["torch"]
        by_gpu: dict[Any, list[tuple[Any, Any]]] = {}
        for target, saved in self._copies:
            by_gpu.setdefault(target.device, []).append((target, saved))
        self._copies = []
        with torch.no_grad():
            for device, copies in by_gpu.items():
                memory = (
                    pinned_memory.allocate(torch)
                    if sum(saved.nbytes for _, saved in copies) >= _LARGE
                    else None
                )
                if memory is not None:
                    _fill(torch, device, copies, memory)
                    continue
                for target, saved in copies:
                    target.copy_(saved)


def _fill(torch: Any, device: Any, copies: list[tuple[Any, Any]], memory: Any) -> None:
    pieces = [piece for target, saved in copies for piece in _pieces(torch, target, saved)]
    training = torch.cuda.current_stream(device)  # its pending work on the targets comes first

    def fill(number: int) -> None:  # fills one piece while the GPU takes the one that it filled before
        half, used = 0, 0
        taken: list[Any] = [None, None]
        with torch.no_grad(), torch.cuda.stream(training):
            for target, address, size in pieces[number::THREADS]:
                if used + size > PIECE:
                    taken[half] = training.record_event()
                    half, used = 1 - half, 0
                    if taken[half] is not None:
                        taken[half].synchronize()
                staged = memory[number, half, used : used + size]
                # Not `copy_`: each of our threads would start as many of torch's.
                ctypes.memmove(staged.data_ptr(), address, size)
                target.copy_(staged, non_blocking=True)
                used += -(-size // _ALIGNED) * _ALIGNED

    with ThreadPoolExecutor(THREADS, "oarlock-restore") as pool:
        list(pool.map(fill, range(THREADS)))
    training.synchronize()  # the program may use other streams


def _pieces(torch: Any, target: Any, saved: Any) -> Iterator[tuple[Any, int, int]]:
    """Bytes of the target, the address of what belongs there, and how many bytes."""
    there, address = target.detach().view(-1).view(torch.uint8), saved.data_ptr()
    for at in range(0, saved.nbytes, PIECE):
        size = min(PIECE, saved.nbytes - at)
        yield there[at : at + size], address + at, size
