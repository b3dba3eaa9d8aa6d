"""`oarlock.data.Shards`: the same global order for any number of workers, and records read at random."""

from __future__ import annotations

import os
import pickle
import random
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.training.data import Batches, Shards
from oarlock.training.data.crc32c import crc32c, masked_crc32c
from oarlock.training.data.near_order import BLOCK, WINDOW, shuffled_near

# What tf.io.TFRecordWriter (2.21) wrote for b"one", b"" and 0..255 three times.
BY_TENSORFLOW = (
    bytes.fromhex(
        "0300000000000000b099490e6f6e6501405508000000000000000029039807d8ea82a2000300000000000033532732"
    )
    + bytes(range(256)) * 3
    + bytes.fromhex("1d2aeac9")
)


def written(path: Path, records: Sequence[bytes]) -> Path:
    def framed(data: bytes) -> bytes:
        length = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        return length + sums[0] + data + sums[1]

    path.write_bytes(b"".join(map(framed, records)))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five shards with 1,000 records in all, one of them empty."""
    number = 0
    for shard, count in enumerate([400, 0, 1, 350, 249]):
        records = [f"{number + i}".encode() * (i % 50) + b"." for i in range(count)]
        written(
            tmp_path / f"train-{shard:05d}",
            [f"{number + i} ".encode() + data for i, data in enumerate(records)],
        )
        number += count
    return tmp_path


def test_what_tensorflow_wrote_is_read_and_what_is_written_here_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BY_TENSORFLOW)
    shards = Shards([tmp_path / "a"], 1, shuffle=False, check=True)
    records = [shards.read(*shards.locate(index)) for index in range(shards.count)]
    assert records == [b"one", b"", bytes(range(256)) * 3]
    assert written(tmp_path / "b", records).read_bytes() == BY_TENSORFLOW


def test_the_checksum_is_the_same_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    chance = random.Random(1)
    texts = [chance.randbytes(size) for size in (0, 1, 255, 256, 511, 512, 513, 65536, 65537, 70_000)]
    with_numpy = [crc32c(text) for text in texts]
    monkeypatch.delitem(sys.modules, "numpy")
    assert [crc32c(text) for text in texts] == with_numpy
    assert crc32c(b"123456789") == 0xE3069283  # of the catalogue of CRCs


def test_the_slices_of_all_ranks_are_one_order_whatever_their_number(folder: Path) -> None:
    shards = Shards(folder / "train-*", 24, seed=3)
    assert (shards.count, shards.steps_per_epoch, len(shards.files)) == (1000, 41, 5)
    for step in (0, 40, 41, 1000):
        whole = shards.all(step)
        for world in (1, 2, 3, 8):
            slices = [shards.mine(step, rank=rank, world=world) for rank in range(world)]
            assert [place for part in slices for place in part] == whole
    later = list(shards.from_step(39, epochs=2, rank=1, world=3))
    assert later == [(step, shards.mine(step, rank=1, world=3)) for step in range(39, 82)]


def test_an_epoch_reads_every_record_at_most_once_and_the_right_one(folder: Path) -> None:
    shards = Shards(str(folder / "train-*"), 10, seed=1)
    for epoch in range(2):
        steps = range(epoch * 100, (epoch + 1) * 100)
        numbers = [int(shards.read(*place).split()[0]) for step in steps for place in shards.all(step)]
        assert sorted(numbers) == list(range(1000))
        assert numbers != sorted(numbers)
    assert shards.locate(400) == (folder / "train-00002", 0)
    assert shards.read(folder / "train-00002", 0).startswith(b"400 ")


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, WINDOW, WINDOW + 1, 2 * WINDOW + 700])
def test_the_near_order_is_a_permutation(count: int) -> None:
    for epoch in range(2):
        assert sorted(shuffled_near(range(count), count, 5, epoch)) == list(range(count))


def test_the_near_order_is_pinned_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [shuffled_near(range(at, at + 10), 10**6, 7, 1)[:4] for at in (0, WINDOW - 2, 999_990)]
    assert found == [
        [662866, 494746, 410916, 637198],
        [637210, 789500, 683988, 723646],
        [352898, 769577, 364858, 316115],
    ]
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    assert [shuffled_near(range(at, at + 10), 10**6, 7, 1)[:4] for at in (0, WINDOW - 2, 999_990)] == found


def test_a_window_comes_from_few_stretches_that_lie_all_over() -> None:
    count = 40 * WINDOW
    order = shuffled_near(range(3 * WINDOW, 4 * WINDOW), count, 0, 2)
    blocks = Counter(index // BLOCK for index in order)
    assert len(blocks) <= 2 * WINDOW // BLOCK  # each stretch of 64 lies in at most two of the grid
    tenths = Counter(index * 10 // count for index in order)
    assert len(tenths) == 10
    assert max(tenths.values()) < 3 * WINDOW // 10
    batch = Counter(index // BLOCK for index in order[:256])
    assert len(batch) > 128


def test_the_examples_left_out_are_others_in_the_next_epoch() -> None:
    count, used = 1100, 1000
    left_out = [set(range(count)) - set(shuffled_near(range(used), count, 0, epoch)) for epoch in range(4)]
    assert len({frozenset(rest) for rest in left_out}) == 4


def test_files_of_any_kind_have_their_counts_given(tmp_path: Path) -> None:
    shards = Shards([tmp_path / "a", tmp_path / "b"], 2, counts=[3, 2], shuffle=False)
    assert shards.all(0) + shards.all(1) == [(tmp_path / "a", i) for i in range(3)] + [(tmp_path / "b", 0)]
    assert shards.batches == Batches(5, 2, shuffle=False)
    with pytest.raises(ValueError, match="counts has 1 numbers for 2 files"):
        Shards([tmp_path / "a", tmp_path / "b"], 2, counts=[3])
    with pytest.raises(FileNotFoundError, match="there are no files"):
        Shards(str(tmp_path / "*.tfrecord"), 2)


def test_an_index_is_kept_as_long_as_its_file_is_the_same(folder: Path) -> None:
    Shards(folder / "train-*", 10)
    path, kept = folder / "train-00003", folder / ".train-00003.index"
    kept.write_bytes(kept.read_bytes()[:-8])  # one record less, which shows that it is used
    assert Shards(folder / "train-*", 10).count == 999
    kept.write_bytes(kept.read_bytes()[:-3])  # cut off
    assert Shards(folder / "train-*", 10).count == 1000
    written(path, [b"new"] * 10)
    assert Shards(folder / "train-*", 10).read(path, 9) == b"new"
    content = path.read_bytes()
    path.write_bytes(content[19:] + content[:19])
    os.utime(path, ns=(1, 1))
    kept.write_bytes(kept.read_bytes()[:-8])
    assert Shards(folder / "train-*", 10).counts[3] == 10


def test_a_folder_that_cannot_be_written_has_no_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in folder.iterdir():
        (folder / f".{path.name}.index").mkdir()  # in the way, also for root
    assert Shards(folder / "train-*", 10).count == 1000


def test_what_is_no_whole_tfrecord_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(BY_TENSORFLOW[:-1])
    with pytest.raises(ValueError, match="x ends inside record 2, which begins at byte 35"):
        Shards([path], 1)
    path.write_bytes(BY_TENSORFLOW[:40])
    with pytest.raises(ValueError, match="x ends inside record 2"):
        Shards([path], 1)
    path.write_bytes(b"\x1f\x8b" + BY_TENSORFLOW)
    with pytest.raises(ValueError, match="is not a TFRecord file, or is damaged at byte 0; a compressed one"):
        Shards([path], 1)


def test_damage_and_change_are_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "x", [b"a" * 100, b"b" * 300])
    checked, unchecked = (Shards([path], 1, check=check) for check in (True, False))
    content = bytearray(path.read_bytes())
    content[150] ^= 1
    path.write_bytes(content)
    assert checked.read(path, 0) == b"a" * 100
    with pytest.raises(ValueError, match="x is damaged: the record at byte 116 does not have its checksum"):
        checked.read(path, 1)
    assert len(unchecked.read(path, 1)) == 300
    path.write_bytes(content[:200])
    with pytest.raises(ValueError, match="x has changed since its records were counted"):
        unchecked.read(path, 1)
    with pytest.raises(IndexError, match="has no example 2, only 2"):
        unchecked.read(path, 2)


def test_threads_share_it_and_other_processes_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oarlock.training.data.shards._MOST_OPEN", 2)
    shards = Shards(folder / "train-*", 10)
    places = [place for step in range(100) for place in shards.all(step)]
    expected = [shards.read(*place) for place in places]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda place: shards.read(*place), places)) == expected
    copy = pickle.loads(pickle.dumps(shards))
    assert copy.mine(7) == shards.mine(7)
    assert copy.read(*places[0]) == expected[0]
