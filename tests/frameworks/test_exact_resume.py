"""Killed at random moments, also while it saves, a training ends with the bits of one that was left alone.

The programs have Dropout, optimizers with a state, and write down which examples every step was made with.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from oarlock.checkpoints.store import Checkpoint, Store
from tests.support import diaries
from tests.support.diaries import BATCHES, PATIENCE, Diary
from tests.support.gangs import Gang
from tests.support.soaking import cases

STEPS, SAVE, PAUSE = 80, 4, 0.025
MOMENTS = cases(
    ["in a save"], soak=["at the start", "after 1-4 steps", "after 5-8 steps", "after 9-12 steps"]
)


@pytest.mark.parametrize("program", cases(["fit"], soak=["torch", "jax", "loop"]))
def test_after_some_kills_the_result_is_the_same_to_the_last_bit(
    home: Path, tmp_path: Path, program: str
) -> None:
    seed = os.environ.get("OARLOCK_CHANCE", program)
    print(f"OARLOCK_CHANCE={seed}")
    calm = diaries.start(tmp_path / "job", program, STEPS, save=SAVE, pause=PAUSE)
    assert calm.end(PATIENCE).state == "succeeded", calm.told()
    gang = diaries.start(tmp_path / "job", program, STEPS, save=SAVE, pause=PAUSE)
    kills = _kill(gang, random.Random(seed))
    assert gang.end(PATIENCE).state == "succeeded", gang.told()
    assert (gang.state.generation, gang.state.restarts) == (kills + 1, kills), gang.told()

    repeated = _check_timeline(diaries.read(gang), diaries.checkpoints(gang))
    print(f"{program}: {kills} kills, {repeated} of {STEPS} steps made again")
    assert _check_timeline(diaries.read(calm), diaries.checkpoints(calm)) == 0
    [alone] = diaries.read(calm)
    diaries.check_losses(alone, diaries.read(gang))
    diaries.check_results(calm, gang, STEPS)


# Killing


def _kill(gang: Gang, chance: random.Random) -> int:
    """Kill a random task again and again; how often, until one kill has landed in the middle of a save."""
    moments = chance.sample(MOMENTS, len(MOMENTS))
    kills, is_proven = 0, False
    _until_generation(gang, 1)
    while moments or not is_proven:
        moment = moments.pop() if moments else "in a save"
        generation = kills + 1
        victim = "worker-0" if moment == "in a save" else f"worker-{chance.randrange(2)}"
        pid = gang.pid(victim)
        if moment == "in a save":
            is_proven |= _kill_in_a_save(gang, generation, pid)
        else:
            _wait_for(moment, gang, generation, chance)
            os.kill(pid, signal.SIGKILL)
        kills += 1
        _until_generation(gang, kills + 1)
        restart = gang.of("restart")[-1]
        assert (restart["task"], restart["reason"]) == (victim, "killed by SIGKILL"), gang.told()
        assert len(gang.of("restart")) == kills, gang.told()
        assert kills < 12, "no kill has landed in the middle of a save"
    return kills


def _wait_for(moment: str, gang: Gang, generation: int, chance: random.Random) -> None:
    if moment == "at the start":
        _pass(gang, chance.uniform(0.0, 0.5))
        return
    fewest, most = map(int, re.findall(r"\d+", moment))
    steps = chance.randint(fewest, most)
    gang.until(diaries.has_made_some(steps, generation), f"{steps} steps", PATIENCE)
    _pass(gang, chance.uniform(0.0, 2 * PAUSE))


def _kill_in_a_save(gang: Gang, generation: int, pid: int) -> bool:
    """Whether it landed there. A save takes milliseconds, which a busy machine may let pass unseen; but
    nobody can commit one while another has the lock of the folder."""
    folder = gang.run.path / "checkpoints"
    gang.until(diaries.has_made_some(1, generation), "first step", PATIENCE)
    with Store(folder)._locked():
        gang.until(lambda _: any(folder.glob(f".saving-*-g{generation}")), "save", PATIENCE)
        os.kill(pid, signal.SIGKILL)
        return any(folder.glob(f".saving-*-g{generation}"))


def _until_generation(gang: Gang, number: int) -> None:
    gang.until(lambda gang: gang.state.generation >= number, f"generation {number}", PATIENCE)


def _pass(gang: Gang, seconds: float) -> None:
    until = time.monotonic() + seconds
    gang.until(lambda _: time.monotonic() >= until, "moment")


# Reading what was done


def _check_timeline(found: list[Diary], saved: list[Checkpoint]) -> int:
    """Every generation begins where the newest checkpoint of those before it was made. What is kept of
    each is then every step once, by all ranks, with the right examples. How many steps were made again."""
    kept: list[list[int]] = [[], []]
    repeated = 0
    begins = [_newest(saved, before=diary.generation) for diary in found]
    for diary, begin, end in zip(found, begins, [*begins[1:], STEPS]):
        counts = [len(began) for began in diary.began]
        assert abs(counts[0] - counts[1]) <= 1, "they train in step"
        for rank, began in enumerate(diary.began):
            steps = [step for step, _ in began]
            assert steps == list(range(begin, begin + len(steps))), (diary.generation, rank, saved)
            for step, examples in began:
                assert examples == BATCHES.mine(step, rank=rank, world=2)
            kept[rank] += [step for step in steps if step < end]
        repeated += max(0, begin + max(counts) - end)
    assert kept == [list(range(STEPS))] * 2
    # And there was something to go back to: most of the saves that were due, from the first on.
    assert len({one.step for one in saved}) > STEPS // SAVE / 2
    return repeated


def _newest(saved: list[Checkpoint], before: int) -> int:
    """Nobody saves in the name of a generation when the next one has formed, and all are kept."""
    return max((one.step for one in saved if one.generation < before), default=0)
