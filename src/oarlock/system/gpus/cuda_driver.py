"""NVIDIA's CUDA driver, called through ctypes: the contexts in which a process works on GPUs.

Frameworks work in the primary context of a GPU, whichever part of the process has opened it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_NAME = "libcuda.so.1"


def contexts() -> tuple[int, ...]:
    """Return the GPUs on which this process has a context, by their numbers in this process. Loads nothing: a
    process without the driver has none."""
    try:
        library = ctypes.CDLL(_NAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return ()
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()  # it is loaded, but not initialized
    return tuple(number for number in range(count.value) if _is_open(library, number))


def start() -> ctypes.CDLL | None:
    """Load and initialize the driver, which takes 3 MiB of a GPU; None if there is none that works."""
    try:
        library = ctypes.CDLL(_NAME)
    except OSError:
        return None
    return library if library.cuInit(0) == 0 else None


def open_contexts(numbers: Sequence[int]) -> bool:
    """Open a context on each of these GPUs. They stay open for as long as this process lives."""
    library = start()
    return library is not None and all(_open(library, number) for number in numbers)


def copy_from(number: int, source: int, target: int, size: int) -> None:
    """Copy bytes from a GPU on which this process has a context, without the GIL; both addresses are the
    process's own. Raises RuntimeError if the driver fails."""
    library = ctypes.CDLL(_NAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    failed = (
        library.cuDeviceGet(ctypes.byref(device), number)
        or library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or library.cuCtxSetCurrent(context)
        or library.cuMemcpyDtoH_v2(ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
    )
    if context.value is not None:
        library.cuDevicePrimaryCtxRelease_v2(device)
    if failed:
        raise RuntimeError(f"error {failed} of CUDA's driver")


@contextmanager
def memory(number: int, size: int) -> Iterator[ctypes.c_void_p | None]:
    """Zeros on a GPU, whose context is current meanwhile; None if the driver refuses. At the end it has done
    all that was asked of it."""
    library = ctypes.CDLL(_NAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    library.cuDeviceGet(ctypes.byref(device), number)
    if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        yield None
        return
    library.cuCtxPushCurrent_v2(context)
    try:
        length = ctypes.c_size_t(size)
        if library.cuMemAlloc_v2(ctypes.byref(address), length) != 0:
            yield None
            return
        library.cuMemsetD8_v2(address, ctypes.c_ubyte(0), length)
        yield address
        library.cuCtxSynchronize()
        library.cuMemFree_v2(address)
    finally:
        library.cuCtxPopCurrent_v2(ctypes.byref(context))
        library.cuDevicePrimaryCtxRelease_v2(device)


def _is_open(library: ctypes.CDLL, number: int) -> bool:
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if library.cuDeviceGet(ctypes.byref(device), number) != 0:
        return False
    said = library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(said == 0 and active.value)


def _open(library: ctypes.CDLL, number: int) -> bool:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if library.cuDeviceGet(ctypes.byref(device), number) != 0:
        return False
    return bool(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)
