"""Does an evaluator slow the training down? Steps per second with it and without it, side by side.

    .venv/bin/python bench/evaluator.py [--repeats N] [--json]

Both sides are `oarlock run -n 1` of the same program, which saves twice a second; one has `--evaluator`,
which restores and scores every checkpoint. Each task gets half of the cores, so there is a core for the
evaluator if the machine has two. The sides take turns five times a second, as in `steps.py`.
"""

from __future__ import annotations

import signal
import time
from statistics import median, quantiles

from arena import arena, oarlock_run, shared_cores
from question import Question, Row, Target, main, progress
from steps import ENDLESS, SLICES, Pair, alternate, rates_in, signal_all


def measure(repeats: int) -> list[Row]:
    pairs: list[Pair] = []
    for turn in range(repeats):
        progress(f"evaluator, pair {turn + 1} of {repeats}")
        pairs.append(_run_pair())
    scored = [median(pair.ours) for pair in pairs]
    alone = [median(pair.peer) for pair in pairs]
    low, _, high = quantiles([ratio for pair in pairs for ratio in pair.ratios])
    note = f"{1000 / median(alone):.1f} ms a step; half of all slices lie between {low:.3f} and {high:.3f}"
    ratios = [median(pair.ratios) for pair in pairs]
    target = Target(0.97, at_least=True)
    return [Row("with an evaluator", "steps/s", scored, alone, "without", target, ratios, note)]


def _run_pair() -> Pair:
    env = shared_cores(2)
    with arena() as scored, arena() as alone:
        oarlock_run(scored, "scored.py", 1, *ENDLESS, options=["--evaluator"], env=env)
        oarlock_run(alone, "scored.py", 1, *ENDLESS, env=env)
        scored.wait(lambda: scored.marks("first"), "first step")
        alone.wait(lambda: alone.marks("first"), "first step")
        time.sleep(1)
        signal_all(scored, signal.SIGSTOP)
        signal_all(alone, signal.SIGSTOP)
        mine, theirs = zip(*(alternate(scored, alone, turn) for turn in range(SLICES)))
        return Pair(rates_in(scored, mine), rates_in(alone, theirs), 0.0)


QUESTION = Question("evaluator", "What an evaluator costs a step", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
