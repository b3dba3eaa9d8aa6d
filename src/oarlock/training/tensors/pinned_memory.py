"""A little pinned memory through which threads carry a lot of bytes to or from a GPU.

A GPU copies at full speed only to and from pages that cannot move. All pages of a checkpoint are not pinned:
the kernel needs 0.2 s to unpin 1.5 GB when a task is killed, and its next process waits for that.
"""

from __future__ import annotations

from typing import Any

THREADS = 4
PIECE = 4 << 20  # bytes; each thread has two pieces


def allocate(torch: Any) -> Any:
    """Two pieces for each thread; None if the system pins no memory for this process. torch keeps the memory
    when it is freed, and returns the same the next time."""
    try:
        return torch.empty(THREADS, 2, PIECE, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return None
