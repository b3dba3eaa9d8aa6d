"""Memory that a program and its writer share, with its pages touched ahead of time.

The first write to a fresh page costs ten times the copy itself (0.49 s instead of 0.045 s for 500 MB), so a
thread touches all pages before the first save. The memory is anonymous: it is freed when both processes end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading


class Buffer:
    """One piece of such memory."""

    def __init__(self, size: int) -> None:
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = _anonymous()
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._touching = threading.Thread(target=self._touch, name="oarlock-buffer", daemon=True)
        self._touching.start()

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes from `begin` to `end`, to write to."""
        return memoryview(self._map)[begin:end]

    def settle(self) -> None:
        """Wait until every page is touched. Copying earlier would be no faster."""
        self._touching.join()

    def close(self) -> None:
        """Free the memory."""
        self._touching.join()
        os.close(self.fd)  # the mapping is freed with the last view of it

    def _touch(self) -> None:
        ctypes.memset(self.address, 0, self.size)  # without the GIL


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("oarlock-checkpoint")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
