"""How long does the command line take to answer? `oarlock --help`, and `oarlock ps` with twenty runs to list.

    .venv/bin/python bench/client.py [--repeats N] [--json]

The runs are made for real, with a program that is Python and nothing else. Beside them, for scale:
`torchrun --help`, and a bare interpreter that does nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from arena import BIN, Arena, arena, oarlock_run
from question import Question, Row, Target, main, progress

_RUNS = 20
_TARGET = Target(0.1, of="ours")
_LIMIT = 60.0  # seconds for one command


def measure(repeats: int) -> list[Row]:
    oarlock, torchrun = str(BIN / "oarlock"), str(BIN / "torchrun")
    commands = {
        "help": [oarlock, "--help"],
        "ps": [oarlock, "ps"],
        "nothing": [sys.executable, "-c", "pass"],
        "torchrun": [torchrun, "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    with arena() as place:
        _make_runs(place)
        for turn in range(repeats):
            progress(f"command line, turn {turn + 1} of {repeats}")
            for name, words in commands.items():
                if name != "torchrun" or turn < 5:  # two seconds each, and only for scale
                    taken[name].append(_time(words, place))
    return [
        Row("`oarlock --help`", "s", taken["help"], taken["torchrun"], "`torchrun --help`", _TARGET),
        Row(f"`oarlock ps`, {_RUNS} runs", "s", taken["ps"], (), "", _TARGET),
        Row("for scale: `python -c pass`", "s", taken["nothing"]),
    ]


def _make_runs(place: Arena) -> None:
    for number in range(_RUNS):
        progress(f"making run {number + 1} of {_RUNS}")
        oarlock_run(place, "plain.py", 2)
        place.finish()
    assert len(list(place.home.glob("runs/*/result.json"))) == _RUNS


def _time(words: Sequence[str], place: Arena) -> float:
    began = time.perf_counter()
    subprocess.run(words, env=place.env, capture_output=True, check=True, timeout=_LIMIT)
    return time.perf_counter() - began


QUESTION = Question("client", "The command line's answers", measure, repeats=20)

if __name__ == "__main__":
    main([QUESTION], __doc__)
