"""Reads reported values without waiting for the device that computes them.

`float(loss)` waits until a GPU has computed the loss, and lets it run dry: the next step is not queued yet.
So the value is copied when it is ready, and read later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class OnTheWay:
    """Values by name, of which some are not here yet."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._copied: dict[str, Any] = {}  # CUDA events
        for name, value in values.items():
            try:
                if _is_on_gpu(value):
                    self._values[name], self._copied[name] = _copied(value)
                elif is_awaited(value):
                    value.copy_to_host_async()
            except RuntimeError:  # the device failed, or gave this memory to another value
                del self._values[name]

    @property
    def is_here(self) -> bool:
        """Whether all values can be read now."""
        return not self._missing()

    def catch_up(self) -> None:
        """Wait for what JAX computes. It lets a program run 32 steps ahead: reports would come as late."""
        for value in self._values.values():
            if is_awaited(value) and not _is_on_gpu(value):
                with suppress(RuntimeError):
                    value.block_until_ready()

    def read(self, are_awaited: bool = True) -> dict[str, Any]:
        """The values without those that their device lost. Waits for the others, or leaves out what is not
        here."""
        missing = set() if are_awaited else self._missing()
        for name, copied in self._copied.items():
            try:
                if name not in missing:
                    copied.synchronize()
            except RuntimeError:
                missing.add(name)
        return {name: value for name, value in self._values.items() if name not in missing}

    def _missing(self) -> set[str]:
        missing = {name for name, value in self._values.items() if is_awaited(value)}
        for name, copied in self._copied.items():
            try:
                if not copied.query():
                    missing.add(name)
            except RuntimeError:  # the GPU failed: there is nothing to wait for
                pass
        return missing


def is_awaited(value: Any) -> bool:
    """Whether reading this value would wait for a device: a torch tensor on a GPU, a JAX array."""
    if _is_on_gpu(value):
        return True
    array: Any = getattr(sys.modules.get("jax"), "Array", ())
    # What a traced function reports is a jax.Array, too, but has nothing to wait for.
    if not isinstance(value, array) or not hasattr(value, "is_ready"):
        return False
    return not value.is_deleted() and not value.is_ready()  # asked of a deleted array, JAX 0.10 crashes


def _is_on_gpu(value: Any) -> bool:
    return bool(getattr(value, "is_cuda", False)) and "torch" in sys.modules


def _copied(value: Any) -> tuple[Any, Any]:
    """The value's copy on the CPU, and the event after which it is there."""
    torch: Any = sys.modules["torch"]
    with torch.cuda.device(value.device):  # the copy is on its stream, the event on the current GPU's
        here = torch.empty_like(value, device="cpu", pin_memory=True)
        here.copy_(value.detach(), non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
    return here, copied
