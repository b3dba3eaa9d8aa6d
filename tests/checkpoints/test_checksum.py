"""The checksum of a file: the same whether it is read in one piece or in parts side by side."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from oarlock.checkpoints import checksum


@pytest.mark.parametrize("size", [0, 1, 7, 1000, 4096, 100_003])
@pytest.mark.parametrize("cores", [1, 2, 3, 16])
def test_parts_make_the_checksum_of_the_whole(
    size: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(size).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    monkeypatch.setenv("OARLOCK_CORES", str(cores))
    monkeypatch.setattr(checksum, "_PART", 64)
    monkeypatch.setattr(checksum, "_CHUNK", 50)
    assert checksum.checksum(path) == (size, f"{zlib.crc32(content):08x}")


def test_any_two_parts() -> None:
    draw = random.Random(0)
    for _ in range(200):
        first, second = (draw.randbytes(draw.randrange(300)) for _ in range(2))
        both = checksum.combined(zlib.crc32(first), zlib.crc32(second), len(second))
        assert both == zlib.crc32(first + second)
