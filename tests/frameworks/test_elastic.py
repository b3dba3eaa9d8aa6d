"""A run that is given other numbers of workers on its way has the loss curve of one that never changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from oarlock.engines.local import local_engine
from tests.support import diaries
from tests.support.diaries import BATCHES, PATIENCE, Diary
from tests.support.soaking import cases

FOREVER = 24_000  # steps; a multiple of the epoch's
NEVER = 10**9  # steps: it saves when it is scaled, not before


@pytest.mark.parametrize(
    ("program", "sizes"),
    cases([("torch", [2, 3, 1])], soak=[("torch", [2, 4, 1, 3]), ("fit", [2, 1]), ("fit", [2, 4, 1, 3])]),
)
def test_scaled_up_and_down_the_losses_stay_what_they_were(
    oarlock: Callable[..., CompletedProcess[str]],
    home: Path,
    tmp_path: Path,
    program: str,
    sizes: list[int],
) -> None:
    gang = diaries.start(tmp_path / "job", program, FOREVER, save=NEVER, pause=0.02, dropout=0.0)
    for generation, size in enumerate(sizes, start=1):
        if generation > 1:
            done = oarlock("scale", gang.run.name, str(size), timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
        gang.until(diaries.has_made_some(12, generation), f"steps of {size} workers", PATIENCE)
    local_engine.stop(gang.run)
    assert gang.end(PATIENCE).state == "stopped", gang.told()
    assert gang.state.restarts == 0

    found = diaries.read(gang)
    assert [diary.world for diary in found] == sizes
    assert [one.generation for one in found] == list(range(1, len(sizes) + 1))
    total = diaries.made_once(found)
    epochs = -(-total // BATCHES.steps_per_epoch)
    steady = diaries.start(
        tmp_path / "job", program, epochs * BATCHES.steps_per_epoch, save=NEVER, pause=0.0, dropout=0.0
    )
    assert steady.end(PATIENCE).state == "succeeded", steady.told()
    expected = _losses(diaries.read(steady))[:total]
    assert _losses(found) == pytest.approx(expected, rel=1e-4)
    assert min(expected[-10:]) < 0.8 * expected[0], "it learns"


def _losses(found: list[Diary]) -> list[float]:
    """Of the global batch: every rank has an equal part of it."""
    return [
        sum(losses) / len(losses)
        for diary in found
        for losses in zip(*([loss for _, loss in made] for made in diary.made))
    ]
