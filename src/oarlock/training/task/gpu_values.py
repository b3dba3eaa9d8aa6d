"""Reads reported values from a GPU without waiting for it.

`float(loss)` waits until the GPU has computed the loss, and lets it run dry: the next step is not queued yet.
So the value is copied when it is ready, and sent with a later report.
"""

from __future__ import annotations

import sys
from typing import Any


class OnTheWay:
    """A report whose values come from a GPU."""

    def __init__(self, event: dict[str, Any]) -> None:
        torch: Any = sys.modules["torch"]
        self._event = event
        self._copies: dict[str, Any] = {}
        for name, value in event.items():
            if is_on_gpu(value):
                here = torch.empty_like(value, device="cpu", pin_memory=True)
                self._copies[name] = here.copy_(value.detach(), non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record()

    @property
    def is_here(self) -> bool:
        """Whether the values can be read now."""
        return bool(self._copied.query())

    def read(self) -> dict[str, Any]:
        """The report with its values. Waits for them."""
        self._copied.synchronize()
        return {**self._event, **self._copies}


def is_on_gpu(value: Any) -> bool:
    """Whether reading this value would wait for a GPU: a torch tensor."""
    return bool(getattr(value, "is_cuda", False)) and "torch" in sys.modules
