"""On one GPU: how soon the first step comes, how fast steps are, what kills and saves cost, in turns.

    .venv/bin/python bench/gpu.py [--only NAME] [--repeats N] [--json]

Needs a GPU and PyTorch with CUDA, so `make bench` leaves it out. The program is examples/gpt_torch: bare, by
`oarlock run -n 1`, and beside the usual way to train such a network (programs/gpt_reference.py). Tokens are
random: they cost a GPU as much as any.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from arena import BIN, PROGRAMS, Arena, MeasurementError, arena
from question import Question, Row, Target, main, progress

_EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt_torch"
_PEAK = 989e12  # operations per second of an H100 or H200, dense, bf16, by the data sheet
_CONTEXT = 1024
_BATCH = {"124m": 96, "774m": 64}
_REFERENCE_BATCH = {"124m": 48, "774m": 16}
_STEPS, _SHOW = {"124m": 80, "774m": 40}, 20
_ENOUGH = 400.0
_STATE = 10 << 10  # MiB


def _words(side: str, *args: str, options: Sequence[str] = ()) -> list[str | Path]:
    program = _EXAMPLE / "train.py"
    if side == "bare":
        return [sys.executable, "-u", program, *args]
    return [BIN / "oarlock", "run", "-n", "1", "--set", "limits.restarts=1000", *options, program, *args]


def _lines(place: Arena, words: Sequence[str | Path], name: str) -> Iterator[tuple[float, str]]:
    """What it prints, and when."""
    folder = place.folder / name
    env = {**place.env, "PYTHONUNBUFFERED": "1", "DATA_DIR": str(place.folder / "data")}
    if words[0] == sys.executable:  # Oarlock gives its runs folders of their own
        env |= {"CHECKPOINT_DIR": str(folder / "checkpoints"), "MODEL_DIR": str(folder / "model")}
        (folder / "model").mkdir(parents=True)
    process = subprocess.Popen(
        [str(word) for word in words],
        env=env,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    place.processes.append(process)  # type: ignore[arg-type]
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        yield time.time(), line
    if process.wait() != 0:
        raise MeasurementError("".join(said[-20:]))


def _tokens(place: Arena) -> str:
    import numpy as np

    path = place.folder / "tokens.bin"
    if not path.exists():
        np.random.default_rng(0).integers(0, 50_257, 20_000_000, dtype=np.uint16).tofile(path)
    return str(path)


def measure_start(repeats: int) -> list[Row]:
    """The tiny network, eager: what is measured is everything before the first step."""
    taken: dict[str, list[float]] = {"bare": [], "oarlock": [], "warm": []}
    with arena() as place:
        args = ("--steps", "3", "--show", "1", "--save", "1000")
        for turn in range(repeats + 1):
            for side in taken:
                progress(f"start {turn} of {repeats}: {side}")
                options = ("--warm", "5m") if side == "warm" else ()
                words = _words("bare" if side == "bare" else "oarlock", *args, options=options)
                began = time.time()
                first = [
                    at
                    for at, line in _lines(place, words, f"{side}-{turn}")
                    if re.search(r"\bstep 1: ", line)
                ]
                if (
                    turn
                ):  # the first of each is not counted: the disk, and for `--warm` there is none before it
                    taken[side].append(first[0] - began)
    bare = taken["bare"]
    return [
        Row("first step, one worker", "s", taken["oarlock"], bare, "python train.py", Target(1.02)),
        Row("first step, `--warm 5m`", "s", taken["warm"], bare, "python train.py", Target(0.2)),
    ]


def measure_steps(size: str, repeats: int) -> list[Row]:
    rates: dict[str, list[float]] = {"reference": [], "bare": [], "oarlock": []}
    with arena() as place:
        tokens = _tokens(place)
        for turn in range(repeats):
            for side in rates:
                progress(f"steps of {size}, {turn + 1} of {repeats}: {side}")
                rates[side].append(_rate(place, size, side, f"{size}-{side}-{turn}", tokens))
    ours = rates["oarlock"]
    shares = [rate * _operations(size) / _PEAK for rate in ours]
    at_least = Target(0.5 if size == "124m" else 0.55, of="ours", at_least=True)
    return [
        Row(
            "tokens a second",
            "",
            ours,
            rates["reference"],
            "plain torch.compile",
            Target(1.05, at_least=True),
        ),
        Row("tokens a second", "", ours, rates["bare"], "python train.py", Target(0.995, at_least=True)),
        Row(f"share of {_PEAK / 1e12:.0f} TFLOP/s", "", shares, target=at_least),
    ]


def _rate(place: Arena, size: str, side: str, name: str, tokens: str) -> float:
    """Tokens per second, from the first printed line to the last."""
    steps = _STEPS[size]
    if side == "reference":
        batch = _REFERENCE_BATCH[size]
        steps *= _BATCH[size] // batch
        shape = ("--size", size, "--batch", str(batch), "--steps", str(steps), "--show", str(_SHOW))
        words: list[str | Path] = [sys.executable, "-u", PROGRAMS / "gpt_reference.py", *shape]
    else:
        batch = _BATCH[size]
        shape = ("--size", size, "--batch", str(batch), "--steps", str(steps), "--show", str(_SHOW))
        words = _words(side, *shape, "--compile", "--tokens", tokens, "--save", "100000")
    marks = [at for at, line in _lines(place, words, name) if re.search(r"\bstep \d+: ", line)]
    return (len(marks) - 1) * _SHOW * batch * _CONTEXT / (marks[-1] - marks[0])


def _operations(size: str) -> float:
    """For one token, as the example counts them."""
    sys.path.insert(0, str(_EXAMPLE))
    from model import SIZES  # type: ignore[import-not-found]

    return float(replace(SIZES[size], vocabulary=50_257).operations)


def measure_kills(repeats: int) -> list[Row]:
    """SIGKILL to the next step, at 124m: eager, and compiled with what the first compilation left behind."""
    rows = []
    for way, limit in (("eager", 1.0), ("compiled", 8.0)):
        with arena() as place:
            shape = ("--size", "124m", "--batch", "8", "--steps", "1000000", "--show", "1")
            more = ("--compile",) if way == "compiled" else ()
            words = _words("oarlock", *shape, "--tokens", _tokens(place), "--save", "5s", *more)
            rows.append(
                Row(
                    f"killed to the next step, 124m {way}",
                    "s",
                    _kills(place, words, way, repeats),
                    target=Target(limit, of="ours"),
                )
            )
    return rows


def _kills(place: Arena, words: Sequence[str | Path], name: str, repeats: int) -> list[float]:
    taken: list[float] = []
    killed, steps = 0.0, 0
    for at, line in _lines(place, words, name):
        if re.search(r"\| generation \d+: ", line):
            steps = 0  # what comes after this line is not from before the kill
        if not re.search(r"\bstep \d+: ", line):
            continue
        steps += 1
        if killed and steps == 1:
            taken.append(at - killed)
            killed = 0.0
        if len(taken) == repeats:
            break
        if steps == 30:
            os.kill(_worker(place), signal.SIGKILL)
            killed = time.time()
    return taken


def _worker(place: Arena) -> int:
    tasks = [event for event in place.events() if event["kind"] == "task" and event.get("pid")]
    return int(tasks[-1]["pid"])


def measure_saves(repeats: int) -> list[Row]:
    """10 GB of state on the GPU: how much later the next step is done because of the save."""
    stalls: dict[str, list[float]] = {"torch": [], "dcp.async_save": [], "torch.save": []}
    for turn in range(repeats):
        for way in stalls:
            progress(f"saves, {turn + 1} of {repeats}: {way}")
            told = _saving(way)
            pairs = zip(told["stalls"], told["after"], strict=True)
            stalls[way] += [stall + max(0.0, after - told["step"]) for stall, after in pairs]
    return [
        Row("a save of 10 GB", "s", stalls["torch"], stalls[peer], f"`{peer}`", target)
        for peer, target in (("dcp.async_save", Target(0.05, of="ours")), ("torch.save", None))
    ]


def _saving(way: str) -> dict[str, Any]:
    words: list[str | Path] = [
        sys.executable,
        PROGRAMS / "saving.py",
        way,
        "--mib",
        str(_STATE),
        "--saves",
        "3",
        "--device",
        "cuda",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_ENOUGH, check=False)
    if done.returncode != 0:
        raise MeasurementError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


QUESTIONS = [
    Question("start", "From the command to the first step on a GPU", measure_start, repeats=3),
    Question("steps-124m", "124 million weights on a GPU", partial(measure_steps, "124m"), repeats=3),
    Question("steps-774m", "774 million weights on a GPU", partial(measure_steps, "774m"), repeats=3),
    Question("kills", "A worker on a GPU is killed", measure_kills, repeats=3),
    Question("saves", "Saving 10 GB from a GPU", measure_saves, repeats=1),
]

if __name__ == "__main__":
    main(QUESTIONS, __doc__)
