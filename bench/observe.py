"""What does it cost to be observed? Steps per second of programs that report nothing, with and without hooks.

    .venv/bin/python bench/observe.py [--repeats N] [--json]

Both sides are `oarlock run`, one of them with `observe: false`. They take turns five times a second, as in
`steps.py`: a hundredth is less than a machine's mood changes in a minute.
"""

from __future__ import annotations

import signal
import time
from statistics import median, quantiles

from arena import arena, oarlock_run, shared_cores
from question import Question, Row, Target, main, progress
from steps import ENDLESS, SLICES, Pair, alternate, rates_in, signal_all

_PROGRAMS = {
    "Keras": "observed_keras.py",
    "Lightning": "observed_lightning.py",
    "accelerate and tqdm": "observed_accelerate.py",
}


def measure(repeats: int) -> list[Row]:
    return [_row(name, repeats) for name in _PROGRAMS]


def _row(name: str, repeats: int) -> Row:
    pairs: list[Pair] = []
    for turn in range(repeats):
        progress(f"observe, {name}, pair {turn + 1} of {repeats}")
        pairs.append(_run_pair(_PROGRAMS[name]))
    seen = [median(pair.ours) for pair in pairs]
    unseen = [median(pair.peer) for pair in pairs]
    low, _, high = quantiles([ratio for pair in pairs for ratio in pair.ratios])
    note = f"{1000 / median(unseen):.1f} ms a step; half of all slices lie between {low:.3f} and {high:.3f}"
    ratios = [median(pair.ratios) for pair in pairs]
    return Row(name, "steps/s", seen, unseen, "observe: false", Target(0.99, at_least=True), ratios, note)


def _run_pair(program: str) -> Pair:
    env = shared_cores(1)
    with arena() as seen, arena() as unseen:
        oarlock_run(seen, program, 1, *ENDLESS, env=env)
        oarlock_run(unseen, program, 1, *ENDLESS, options=["--set", "observe=false"], env=env)
        seen.wait(lambda: seen.marks("first"), "first step")
        unseen.wait(lambda: unseen.marks("first"), "first step")
        time.sleep(1)
        signal_all(seen, signal.SIGSTOP)
        signal_all(unseen, signal.SIGSTOP)
        mine, theirs = zip(*(alternate(seen, unseen, turn) for turn in range(SLICES)))
        return Pair(rates_in(seen, mine), rates_in(unseen, theirs), 0.0)


QUESTION = Question("observe", "What hooks cost a step", measure, repeats=3)

if __name__ == "__main__":
    main([QUESTION], __doc__)
