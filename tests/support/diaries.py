"""Programs whose ranks write down every step, started as gangs, and what they wrote (programs/diary.py)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oarlock.checkpoints.store import Checkpoint, Store
from oarlock.training.data import Batches
from tests.support.gangs import Gang

PROGRAMS = Path(__file__).parents[1] / "frameworks" / "programs"
BATCHES = Batches(240, 24, seed=3)  # as all of the programs have them
PATIENCE = 240.0  # seconds; TensorFlow alone may take twenty to start where others work, too


def start(
    folder: Path,
    program: str,
    total: int,
    *,
    save: int,
    pause: float,
    dropout: float = 0.2,
    width: int = 64,
    **fields: Any,
) -> Gang:
    """programs/exact_PROGRAM.py: so many steps, saved every so many, with a pause of seconds in each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__pycache__").mkdir(exist_ok=True)  # a folder that changes is imported from anew
    shutil.copy(PROGRAMS / "diary.py", folder)
    text = (PROGRAMS / f"exact_{program}.py").read_text()
    words = [str(one) for one in (total, save, pause, dropout, width)]
    # The next run of the same test, in the same folder, need not import the framework again.
    return Gang(folder, text, args=words, **{"limits": {"restarts": 20}, "warm": "20s", **fields})


@dataclass(frozen=True)
class Diary:
    """Of one generation; one list per rank."""

    generation: int
    began: list[list[tuple[int, list[int]]]]  # step and examples
    made: list[list[tuple[int, float]]]  # step and loss

    @property
    def world(self) -> int:
        return len(self.began)

    @property
    def last(self) -> int:
        """The last step that all have made; -1 if there is none."""
        return min(made[-1][0] if made else -1 for made in self.made)


def read(gang: Gang) -> list[Diary]:
    """Of all generations that came as far as to begin one, in order."""
    found: dict[tuple[int, int], Diary] = {}
    for path in (gang.run.path / "tensorboard").glob("diary-*"):
        generation, rank, world = map(int, re.findall(r"\d+", path.name))
        empty = Diary(generation, [[] for _ in range(world)], [[] for _ in range(world)])
        diary = found.setdefault((generation, world), empty)
        lines = path.read_text().split("\n")[:-1]  # the last may be half written
        for what, step, rest in (line.split(" ") for line in lines):
            if what == "began":
                diary.began[rank].append((int(step), [int(one) for one in rest.split(",")]))
            else:
                diary.made[rank].append((int(step), float(rest)))
    return [diary for _, diary in sorted(found.items())]


def has_made_some(steps: int, generation: int) -> Callable[[Gang], bool]:
    """Whether a rank has made so many in that generation."""

    def look(gang: Gang) -> bool:
        made = [one for diary in read(gang) if diary.generation == generation for one in diary.made]
        return any(len(one) >= steps for one in made)

    return look


def made_once(diaries: list[Diary]) -> int:
    """How many steps were made, by all ranks of a generation alike, none left out and none made twice."""
    total = 0
    for diary in diaries:
        steps = [[step for step, _ in made] for made in diary.made]
        assert steps == [list(range(total, total + len(steps[0])))] * diary.world, (diary.generation, total)
        total += len(steps[0])
        for rank, began in enumerate(diary.began):
            for step, examples in began:
                assert examples == BATCHES.mine(step, rank=rank, world=diary.world), (step, rank)
    return total


def checkpoints(gang: Gang) -> list[Checkpoint]:
    return Store(gang.run.path / "checkpoints").checkpoints()


def made_so_far(gang: Gang) -> int:
    return max((diary.last + 1 for diary in read(gang)), default=0)


def check_losses(alone: Diary, parts: Iterable[Diary]) -> None:
    """Of every step those of the one that was left alone, also where a step was made again; of a fit, what
    Keras has measured since the epoch began."""
    for diary in parts:
        for made, expected in zip(diary.made, alone.made):
            assert made == [expected[step] for step, _ in made], diary.generation


def check_results(calm: Gang, gang: Gang, steps: int) -> None:
    """The same bits: weights and metrics at the end; then the optimizer, seeds and all else that is kept."""
    with (
        np.load(calm.run.path / "model" / "final.npz") as expected,
        np.load(gang.run.path / "model" / "final.npz") as found,
    ):
        assert expected.files == found.files
        for name in expected.files:
            assert expected[name].tobytes() == found[name].tobytes(), name
            assert np.isfinite(expected[name]).all()
    ends = [checkpoints(one)[-1] for one in (calm, gang)]
    assert [end.step for end in ends] == [steps, steps]
    assert len({(end.path / "state.safetensors").read_bytes() for end in ends}) == 1
