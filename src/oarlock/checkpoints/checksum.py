"""Size and CRC-32 of a file, as manifests have them.

One thread reads about 1.5 GB a second, and a restart waits for it. Large files are therefore read in parts
side by side, and the checksums of the parts are combined.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from oarlock.system.processors import usable_cores

_CHUNK = 1 << 22
_PART = 64 << 20  # bytes at least for each thread
_THREADS = 16
_POLYNOMIAL = 0xEDB88320  # of CRC-32, its highest power in the lowest bit
_ONE, _X = 1 << 31, 1 << 30  # the polynomials 1 and x, likewise


def checksum(path: Path) -> tuple[int, str]:
    """Read every byte of the file. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        count = max(1, min(size // _PART, usable_cores(), _THREADS))
        borders = [size * number // count for number in range(count)]
        if count == 1:
            size, crc = _read(file.fileno(), 0, None)
            return size, f"{crc:08x}"
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(count) as pool:
            ends: list[int | None] = [*borders[1:], None]  # the last reads on, if the file has grown
            parts = list(pool.map(lambda begin, end: _read(file.fileno(), begin, end), borders, ends))
    size = crc = 0
    for length, part in parts:
        size, crc = size + length, combined(crc, part, length)
    return size, f"{crc:08x}"


def _read(fd: int, begin: int, end: int | None) -> tuple[int, int]:
    """Length and checksum of a part of a file."""
    buffer, at, crc = memoryview(bytearray(_CHUNK)), begin, 0
    while end is None or at < end:
        wanted = _CHUNK if end is None else min(_CHUNK, end - at)
        count = os.preadv(fd, [buffer[:wanted]], at)
        if not count:
            break
        crc = zlib.crc32(buffer[:count], crc)
        at += count
    return at - begin, crc


def combined(first: int, second: int, length: int) -> int:
    """The checksum of two parts: the first times x to the number of bits that follow, plus the second."""
    return _times(_power(8 * length), first) ^ second


def _power(exponent: int) -> int:
    """That power of x."""
    result, square = _ONE, _X
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product
