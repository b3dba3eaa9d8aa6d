"""TensorBoard's files and what its server makes of them, without TensorFlow."""

from __future__ import annotations

import json
import struct
import urllib.request

TAGS = "data/plugin/scalars/tags"


def event_file(tag: str) -> bytes:
    """A scalar as tf.summary writes it: records with length and checksums, in each an Event."""

    def field(number: int, kind: int, value: bytes) -> bytes:
        size = bytes([len(value)]) if kind == 2 else b""
        return bytes([number << 3 | kind]) + size + value

    value = field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", 0.5))
    events = [field(3, 2, b"brain.Event:2"), field(2, 0, b"\x01") + field(5, 2, field(1, 2, value))]
    return b"".join(_record(field(1, 1, struct.pack("<d", 1.0)) + event) for event in events)


def tags_at(url: str) -> set[str]:
    """The scalars that a TensorBoard at this address shows."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.status == 200
        answer.read()
    with urllib.request.urlopen(url + TAGS, timeout=60) as answer:
        return {tag for tags in json.loads(answer.read()).values() for tag in tags}


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    """CRC-32C, rotated as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
