"""A run whose machine asks it to leave, at any moment, loses no step: it goes on with the very next one."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest

from oarlock.engines.local import local_engine
from tests.support import diaries
from tests.support.diaries import PATIENCE
from tests.support.gangs import Gang
from tests.support.soaking import cases, moments, only_in_soak

MOMENTS = moments(3)
NEVER = 10**9  # steps: it only saves when it is asked to leave, and at the end


@pytest.mark.timeout(3600)
def test_no_step_is_lost_or_made_twice(home: Path, tmp_path: Path) -> None:
    total = 40 * MOMENTS
    gang = diaries.start(tmp_path / "job", "torch", total, save=NEVER, pause=0.02)
    kinds = itertools.cycle(["in its first steps", "while it starts", "on its way"])
    _preempt(gang, [*itertools.islice(kinds, MOMENTS - 1), "in its last steps"], total)


@only_in_soak
def test_no_step_of_a_fit_is_lost_or_made_twice(home: Path, tmp_path: Path) -> None:
    gang = diaries.start(tmp_path / "job", "fit", 60, save=NEVER, pause=0.03)
    _preempt(gang, cases(["on its way"], soak=["in its last steps"]), 60)


@only_in_soak
def test_all_steps_made_are_saved_before_it_leaves(home: Path, tmp_path: Path) -> None:
    """A state so large that the last save takes a while: the request comes in the middle of it."""
    gang = diaries.start(tmp_path / "job", "torch", 6, save=NEVER, pause=0.0, width=1 << 18)
    _preempt(gang, ["when all is made"], 6)


def _preempt(gang: Gang, moments: list[str], total: int) -> None:
    """At each of these moments, going on every time; and then let it come to its end."""
    seed = os.environ.get("OARLOCK_CHANCE", f"{len(moments)}")
    print(f"OARLOCK_CHANCE={seed}")
    chance = random.Random(seed)
    made, left = [], 0
    for number, moment in enumerate(moments):
        _until_taken_up(gang, number + 1)
        _wait_for(moment, gang, total * (number + 1) // (len(moments) + 1), total, chance)
        assert gang.state.agent is not None
        os.kill(gang.state.agent, signal.SIGTERM)
        state = gang.end(PATIENCE)
        made.append(diaries.made_once(diaries.read(gang)))
        if state.state == "succeeded":
            break
        left += 1
        assert (state.state, state.code) == ("stopped", 143), gang.told()
        local_engine.resume(gang.run)
    else:
        assert gang.end(PATIENCE).state == "succeeded", gang.told()
    print(f"asked to leave after {made} of {total} steps")
    # Near its end, or where the test is held up, it can be through before it hears of it.
    assert left >= min(1, len(moments) - 1)
    assert diaries.made_once(diaries.read(gang)) == total
    assert gang.state.restarts == 0


def _until_taken_up(gang: Gang, times: int) -> None:
    gang.until(lambda gang: len(gang.of("agent")) == times, f"agent {times}", PATIENCE)


def _wait_for(moment: str, gang: Gang, share: int, total: int, chance: random.Random) -> None:
    if moment == "while it starts":
        taken_up = gang.events.index(gang.of("agent")[-1])
        kind = chance.choice(["agent", "ready", "generation", "task"])
        gang.until(lambda gang: kind in [one["kind"] for one in gang.events[taken_up:]], kind, PATIENCE)
        until = time.monotonic() + chance.random()
        gang.until(lambda _: time.monotonic() >= until, "moment", PATIENCE)
        return
    made = diaries.made_so_far(gang)
    steps = {
        "in its first steps": made + chance.randint(1, 6),
        "on its way": max(share, made + 1),
        "in its last steps": total - chance.randint(1, 6),
        "when all is made": total,
    }[moment]
    gang.until(lambda gang: diaries.made_so_far(gang) >= steps, f"{steps} steps", 2 * PATIENCE)
