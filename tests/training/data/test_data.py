"""`oarlock.data`: the order of examples, the slices of the ranks, and folders that are made once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.training.data import Batches, once


def cases(number: int) -> list[Batches]:
    chance = random.Random(1)
    return [
        Batches(chance.randint(120, 5000), chance.choice([24, 48, 120]), seed=chance.randint(0, 10**12))
        for _ in range(number)
    ]


def epoch(batches: Batches, number: int) -> list[int]:
    steps = batches.steps_per_epoch
    return [i for step in range(number * steps, (number + 1) * steps) for i in batches.indices(step)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 10, 11, 99, 100, 101, 1023, 1024, 1025, 5000])
def test_an_epoch_is_a_permutation_of_all_examples(count: int) -> None:
    for seed in range(3):
        batches = Batches(count, global_batch=1, seed=seed)
        assert sorted(epoch(batches, seed)) == list(range(count))


def test_no_example_comes_twice_in_an_epoch_and_the_rest_is_left_out() -> None:
    for batches in cases(20):
        seen = epoch(batches, 3)
        assert len(seen) == batches.steps_per_epoch * batches.global_batch == len(set(seen))
        assert batches.count - len(seen) < batches.global_batch
        assert set(seen) <= set(range(batches.count))


def test_the_examples_left_out_are_others_in_the_next_epoch() -> None:
    batches = Batches(count=1100, global_batch=200)
    left_out = [set(range(1100)) - set(epoch(batches, number)) for number in range(4)]
    assert all(len(rest) == 100 for rest in left_out)
    assert len({frozenset(rest) for rest in left_out}) == 4


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_the_slices_of_all_ranks_are_the_global_batch(world: int) -> None:
    for batches in cases(10):
        for step in (0, batches.steps_per_epoch - 1, batches.steps_per_epoch, 1000):
            slices = [batches.mine(step, rank=rank, world=world) for rank in range(world)]
            assert len({len(part) for part in slices}) == 1
            assert [index for part in slices for index in part] == batches.indices(step)


def test_the_order_is_pinned_for_ever() -> None:
    # Another order would make every resumed run train on other examples than it should.
    assert Batches(10, 10).indices(0) == [9, 4, 2, 7, 0, 5, 3, 6, 1, 8]
    assert Batches(10, 10).indices(1) == [9, 4, 0, 1, 2, 8, 5, 3, 7, 6]
    assert Batches(10, 10, seed=1).indices(0) == [4, 0, 5, 8, 6, 2, 7, 1, 3, 9]
    assert Batches(60_000, 128, seed=7).indices(1000)[:4] == [34146, 55631, 29974, 50517]
    assert Batches(10**9, 64, seed=2**40).indices(5)[:3] == [248334697, 526835650, 186693605]


def test_the_order_is_the_same_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    some = [*cases(10), Batches(10**7, 128), Batches(2**40 + 1, 128, seed=5)]
    with_numpy = [batches.indices(7) for batches in some]
    monkeypatch.delitem(sys.modules, "numpy")
    assert [batches.indices(7) for batches in some] == with_numpy
    assert all(type(index) is int for batch in with_numpy for index in batch)


def test_the_order_is_well_mixed() -> None:
    """Where an example is says nothing of where it goes: 400 equal cells over 200 epochs, chi-squared."""
    cells = [0] * 400
    for number in range(200):
        for place, index in enumerate(epoch(Batches(1000, 1000, seed=3), number)):
            cells[place // 50 * 20 + index // 50] += 1
    expected = 200 * 1000 / 400
    assert sum((found - expected) ** 2 / expected for found in cells) < 361 + 5 * (2 * 361) ** 0.5


def test_without_shuffle_the_examples_come_in_their_own_order() -> None:
    batches = Batches(10, 4, shuffle=False)
    assert [batches.indices(step) for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]


def test_going_on_from_a_step_gives_what_would_have_come() -> None:
    batches = Batches(100, 12, seed=4)
    everything = list(batches.from_step(epochs=3, rank=1, world=3))
    assert [step for step, _ in everything] == list(range(3 * 8))
    assert everything[0] == (0, batches.mine(0, rank=1, world=3))
    assert list(batches.from_step(13, epochs=3, rank=1, world=3)) == everything[13:]
    assert list(batches.from_step(24, epochs=3)) == []


def test_without_a_last_epoch_the_steps_go_on() -> None:
    endless = Batches(10, 5).from_step(10**6)
    assert [step for step, _ in (next(endless), next(endless))] == [10**6, 10**6 + 1]


def test_rank_and_world_are_those_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(100, 12)
    assert batches.mine(3) == batches.indices(3)
    for name, value in {"RUN": "r", "RANK": "2", "WORLD": "4"}.items():
        monkeypatch.setenv(f"OARLOCK_{name}", value)
    assert batches.mine(3) == batches.indices(3)[6:9]
    assert next(batches.from_step(3)) == (3, batches.mine(3))


def test_a_batch_that_cannot_be_shared_out_equally_is_refused() -> None:
    batches = Batches(1000, 128)
    sentence = "a global batch of 128 cannot be split evenly among 3 workers: use a multiple of 3"
    with pytest.raises(ValueError, match=sentence):
        batches.mine(0, rank=0, world=3)
    with pytest.raises(ValueError, match=sentence):
        batches.from_step(0, rank=0, world=3)  # at once, not at its first batch


def test_a_task_without_a_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OARLOCK_RUN", "r")  # an evaluator: part of a run, and no rank
    with pytest.raises(ValueError, match="only the chief and workers have one"):
        Batches(1000, 128).mine(0)


@pytest.mark.parametrize(("count", "batch", "step"), [(100, 128, 0), (100, 0, 0), (100, 10, -1)])
def test_numbers_that_make_no_batch_are_refused(count: int, batch: int, step: int) -> None:
    with pytest.raises(ValueError, match=r"too few|empty|counted from 0"):
        Batches(count, batch).indices(step)


# Eight of these are let go together. The first to make the folder is killed in the middle of it.
MAKER = """
import os, signal, sys
from pathlib import Path
from oarlock.training.data import once

folder, notes = Path(sys.argv[1]), Path(sys.argv[2])

def make(folder):
    assert not any(path.name != ".once" for path in folder.iterdir()), "not cleared"
    notes.joinpath(f"made-by-{os.getpid()}").touch()
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "half").write_text("half")
    try:
        os.close(os.open(notes / "victim", os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    (folder / "whole").write_text("whole")

print("ready", flush=True)
sys.stdin.read()
print((once(folder, make) / "whole").read_text())
"""


def test_a_folder_is_made_once_by_eight_processes_one_of_which_dies_making_it(tmp_path: Path) -> None:
    folder, notes = tmp_path / "data" / "digits", tmp_path / "notes"
    notes.mkdir()
    pipe = subprocess.PIPE
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(folder), str(notes)], stdin=pipe, stdout=pipe, text=True
        )
        for _ in range(8)
    ]
    try:
        assert [maker.stdout.readline() for maker in makers if maker.stdout] == ["ready\n"] * 8
        for maker in makers:
            assert maker.stdin
            maker.stdin.close()
            maker.stdin = None
        ends = [(maker.communicate(timeout=300)[0], maker.returncode) for maker in makers]
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
    assert sorted(ends) == [("", -signal.SIGKILL), *[("whole\n", 0)] * 7]
    assert len(list(notes.glob("made-by-*"))) == 2  # the one that died, and one more


def test_a_folder_that_is_done_is_not_made_again(tmp_path: Path) -> None:
    calls: list[Path] = []
    assert once(tmp_path / "data", calls.append) == tmp_path / "data"
    assert once(str(tmp_path / "data"), calls.append) == tmp_path / "data"
    assert calls == [tmp_path / "data"]


def test_a_maker_that_fails_is_tried_again_in_an_empty_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        once(tmp_path / "data", fail)
    once(tmp_path / "data", lambda folder: (folder / "whole").touch())
    assert [path.name for path in (tmp_path / "data").iterdir() if path.name != ".once"] == ["whole"]


def test_a_folder_with_other_files_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="has files that were not made here"):
        once(tmp_path, lambda folder: None)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_waiting_for_another_maker_has_an_end(tmp_path: Path) -> None:
    def ask_again(folder: Path) -> None:
        once(folder, ask_again, wait=0.05)  # the lock is held by the caller

    with pytest.raises(TimeoutError, match=r"waited 0.05 s for another task to make .*data"):
        once(tmp_path / "data", ask_again)
