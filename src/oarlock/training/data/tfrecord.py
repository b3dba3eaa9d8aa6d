"""TFRecord files, read at random: where each record begins, and its bytes. Needs no TensorFlow.

A record is its length (8 bytes), a checksum of the length, the data, and a checksum of the data. To find the
records, a file's lengths are read once; the result is kept beside it (`.<name>.index`) and used as long as
the file keeps its size and time.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from array import array
from pathlib import Path

from oarlock.system.atomic_file import write_whole
from oarlock.training.data.crc32c import masked_crc32c

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_AROUND = _HEADER.size + _FOOTER.size
_FORMAT = 1


def index(path: Path) -> array[int]:
    """Where each record begins, and where the file ends. Raises ValueError if it is not a TFRecord file."""
    found = path.stat()
    mark = json.dumps({"format": _FORMAT, "size": found.st_size, "mtime_ns": found.st_mtime_ns}).encode()
    beside = path.with_name(f".{path.name}.index")
    starts = _kept(beside, mark)
    if starts is None:
        starts = _read(path, found.st_size)
        try:
            write_whole(beside, mark + b"\n" + _little(starts).tobytes(), writer=f"part-{os.getpid()}")
        except OSError:  # a read-only folder: each process reads the lengths itself
            pass
    return starts


class Records:
    """The records of one file, which is closed when the last reading thread lets go of it.

    `starts` is its index.
    """

    def __init__(self, path: Path, starts: array[int]) -> None:
        self._path = path
        self._starts = starts
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def read(self, number: int, check: bool) -> bytes:
        """The data of one record. `check`: verify its checksum, too."""
        if not 0 <= number < len(self._starts) - 1:
            raise IndexError(f"{self._path} has no example {number}, only {len(self._starts) - 1}")
        start = self._starts[number]
        whole = os.pread(self._fd, self._starts[number + 1] - start, start)
        data = whole[_HEADER.size : -_FOOTER.size]
        if len(whole) < _AROUND or _HEADER.unpack_from(whole)[0] != len(data):
            raise ValueError(f"{self._path} has changed since its records were counted")
        if check and masked_crc32c(data) != _FOOTER.unpack_from(whole, len(whole) - _FOOTER.size)[0]:
            raise ValueError(
                f"{self._path} is damaged: the record at byte {start} does not have its checksum"
            )
        return data


def _read(path: Path, size: int) -> array[int]:
    starts = array("Q", [0])
    at = 0
    with path.open("rb") as file:
        while at < size:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise ValueError(_half(path, len(starts) - 1, at))
            length, crc = _HEADER.unpack(header)
            if masked_crc32c(header[:8]) != crc:
                raise ValueError(
                    f"{path} is not a TFRecord file, or is damaged at byte {at}; a compressed one has to be"
                    " unpacked first; for files of another kind give counts="
                )
            at += _AROUND + length
            starts.append(at)
            file.seek(at)
    if at > size:
        raise ValueError(_half(path, len(starts) - 2, starts[-2]))
    return starts


def _half(path: Path, number: int, at: int) -> str:
    return f"{path} ends inside record {number}, which begins at byte {at}: it was not written to its end"


def _kept(beside: Path, mark: bytes) -> array[int] | None:
    try:
        head, _, body = beside.read_bytes().partition(b"\n")
    except OSError:
        return None
    if head != mark or not body or len(body) % 8:
        return None
    starts = array("Q", body)
    return _little(starts)


def _little(starts: array[int]) -> array[int]:
    """With the bytes of each number in the file's order; on most machines that is the native one."""
    if sys.byteorder == "big":
        starts = array("Q", starts)
        starts.byteswap()
    return starts
