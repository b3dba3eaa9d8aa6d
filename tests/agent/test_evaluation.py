"""An evaluator beside the training: it scores every checkpoint, whatever happens to it."""

from __future__ import annotations

import random
from collections.abc import Callable

from oarlock.checkpoints import score_file
from oarlock.checkpoints.store import Store
from tests.support.gangs import Gang
from tests.support.soaking import moments

Start = Callable[..., Gang]
# The score is what a trainer had at that step, so a wrong or an untrained state is seen.
PROGRAM = """
import time, oarlock
state = oarlock.State(height=0.0)
if oarlock.current().role == "evaluator":
    for step in state.follow():
        time.sleep(SLOW)
        state.report(height=state.height, error=abs(state.height - step / 3))
else:
    for step in state.steps(STEPS, save=10, OPTIONS):
        state.height += 1 / 3
        time.sleep(0.01)
"""
ROLES = {"worker": 1, "evaluator": 1}
ONCE_FOLLOWED = "while not (oarlock.current().checkpoints / '.scores.json').exists(): time.sleep(0.01)"
AFTER_A_SAVE = "state._session.finish(); state.report(quality=step)"


def program(steps: int = 60, slow: float = 0.0, options: str = "keep=1000") -> str:
    return PROGRAM.replace("STEPS", str(steps)).replace("SLOW", str(slow)).replace("OPTIONS", options)


def scored(gang: Gang) -> dict[int, float]:
    """The score of each step."""
    scores = [event for event in gang.of("report") if event["task"] == "evaluator-0"]
    return {score["step"]: score["height"] for score in scores}


def kept(gang: Gang) -> dict[int, float]:
    """What the score of each checkpoint must be. Some are skipped while the one before is being written."""
    heights = [0.0]
    while len(heights) < 2000:
        heights.append(heights[-1] + 1 / 3)
    return {one.step: heights[one.step] for one in Store(gang.run.folder("checkpoints")).checkpoints()}


def test_every_checkpoint_is_scored_in_order_and_the_last_one_before_the_run_ends(start: Start) -> None:
    gang = start(program(), roles=ROLES)
    state = gang.end()
    assert state.state == "succeeded", gang.told()
    assert scored(gang) == kept(gang)
    assert max(scored(gang)) == 60
    assert list(scored(gang)) == sorted(scored(gang))
    assert state.tasks["evaluator-0"].state == "finished"
    best = state.scores["height"]
    assert (best.latest, best.latest_step, best.best_step) == (kept(gang)[60], 60, 60)
    assert state.scores["error"].best_step < 60  # of an error less is better


def kill_after(gang: Gang, more: int, starts: int) -> None:
    """Kill the evaluator after so many more scores, and wait until it has started again."""
    wanted = len(scored(gang)) + more
    gang.until(lambda gang: len(scored(gang)) >= wanted, f"{wanted} scores")
    gang.kill("evaluator-0")
    gang.until(lambda gang: gang.state.tasks["evaluator-0"].starts > starts, "its next start")


def test_an_evaluator_that_is_killed_at_any_moment_misses_no_checkpoint(start: Start) -> None:
    kills = moments(2)
    gang = start(program(steps=100 + 40 * kills, slow=0.05), roles=ROLES, limits={"restarts": 2 * kills})
    for number in range(1, kills + 1):
        kill_after(gang, random.randint(0, 3), number)
    state = gang.end()
    assert (state.state, state.restarts) == ("succeeded", kills), gang.told()
    assert state.tasks["worker-0"].starts == 1
    assert scored(gang) == kept(gang)


def test_an_evaluator_that_is_killed_while_the_run_waits_for_its_last_score_scores_it(start: Start) -> None:
    gang = start(program(steps=20, slow=1.0), roles=ROLES)
    gang.until(
        lambda gang: any("waiting for" in note for note in gang.state.notes), "wait for the last score"
    )
    gang.kill("evaluator-0")
    assert gang.end().state == "succeeded", gang.told()
    assert scored(gang) == kept(gang)


def test_the_best_by_the_evaluator_s_score_is_kept(start: Start) -> None:
    """The trainer reports the same metric, with its best at the end: that does not count."""
    text = program(steps=120, slow=0.1, options='keep=1, best="max:quality"')
    text = text.replace("state.report(", "state.report(quality=-abs(step - 40), ")
    text = text.replace("state.height += 1 / 3", f"{AFTER_A_SAVE}; state.height += 1 / 3")
    gang = start(text.replace("else:", f"else:\n    {ONCE_FOLLOWED}"), roles=ROLES)
    assert gang.end().state == "succeeded", gang.told()
    store = Store(gang.run.folder("checkpoints"))
    left = store.checkpoints()
    assert {40, 120} <= {one.step for one in left}
    assert len(left) <= 2 + 5  # those that waited for the evaluator when the training ended
    assert score_file.read(store.folder).names(left) == [one.name for one in left]
