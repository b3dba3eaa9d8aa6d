"""TensorBoard's event files, as bytes: scalars only, without TensorFlow. Pure; travels into pods.

A file is a sequence of records (TFRecord): length, checksum of the length, data, checksum of the data. Each
holds one `Event` message of tensorflow/core/util/event.proto, whose few fields are encoded by hand here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is encoded
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]  # the largest: TensorBoard stores 32 bits


def header(t: float) -> bytes:
    """Return the first record of every file."""
    return _record(_event(t) + _field(3, b"brain.Event:2"))


def restart(t: float, step: int) -> bytes:
    """Return a record after which readers drop the points from `step` on: that work is done again."""
    return _record(_event(t, step) + _field(7, _key(1, _VARINT) + _varint(1)))


def scalars(t: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return one record with the values of several tags at a step."""
    encoded = (_field(1, tag.encode()) + _key(2, _FIXED32) + _float(value) for tag, value in values.items())
    return _record(_event(t, step) + _field(5, b"".join(_field(1, value) for value in encoded)))


def _event(t: float, step: int = 0) -> bytes:
    return _key(1, _FIXED64) + struct.pack("<d", t) + _key(2, _VARINT) + _varint(step)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are in two's complement
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _float(value: float) -> bytes:
    if abs(value) > _LARGEST:
        value = float("inf") if value > 0 else float("-inf")
    return struct.pack("<f", value)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    """The CRC-32C of the data, rotated as TFRecord requires. zlib's CRC-32 has another polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))
