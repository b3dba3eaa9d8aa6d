"""CRC-32C, the checksum of TFRecord files. The standard library has only the other polynomial.

A loop does 15 MB/s. If NumPy is loaded, the bytes of a block are looked up together, at 100 MB/s: a
checksum is the XOR of what each byte contributes, given how many bytes follow it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

_POLYNOMIAL = 0x82F63B78  # reflected
_ONES = 0xFFFFFFFF
_BLOCK = 512  # bytes looked up together: their tables fit into a processor's cache
_CHUNK = 128 * _BLOCK
_SHORT = 256  # bytes below which the loop is as fast


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files store it: rotated, with a constant added."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


def crc32c(data: bytes) -> int:
    """The checksum of `data`."""
    numpy = sys.modules.get("numpy")  # never imported here: not every image has it
    if numpy is not None and len(data) >= _SHORT:
        # A register of ones inverts the first four bytes; one of zeros is not changed by zeros in front.
        inverted = bytes(byte ^ 255 for byte in data[:4])
        return _of_blocks(numpy, bytes(-len(data) % _BLOCK) + inverted + data[4:]) ^ _ONES
    crc, table = _ONES, _bytes()
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ _ONES


def _of_blocks(numpy: Any, data: bytes) -> int:
    """The register after whole blocks, from zero. It is XORed into the first four bytes of the next block."""
    tables, places, first = _tables(numpy)
    crc = 0
    for start in range(0, len(data), _CHUNK):
        blocks = numpy.frombuffer(data[start : start + _CHUNK], dtype=numpy.uint8).reshape(-1, _BLOCK)
        for added in numpy.bitwise_xor.reduce(tables.take(blocks + places), axis=1).tolist():
            crc = added ^ (
                first[0][crc & 255]
                ^ first[1][crc >> 8 & 255]
                ^ first[2][crc >> 16 & 255]
                ^ first[3][crc >> 24]
            )
    return crc


@lru_cache(maxsize=1)
def _bytes() -> list[int]:
    """What one byte contributes, by its value."""
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


@lru_cache(maxsize=1)
def _tables(numpy: Any) -> tuple[Any, Any, list[list[int]]]:
    """What a byte contributes, by place in a block and value; where each place begins; the first four."""
    last = numpy.array(_bytes(), dtype=numpy.uint32)
    rows = [last]
    for _ in range(_BLOCK - 1):
        rows.append(last[rows[-1] & 255] ^ rows[-1] >> 8)
    rows.reverse()
    places = numpy.arange(_BLOCK, dtype=numpy.int32) * 256
    return numpy.concatenate(rows), places, [row.tolist() for row in rows[:4]]
