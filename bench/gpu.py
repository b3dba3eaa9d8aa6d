"""On one GPU: how soon the first step comes, how fast steps are, what kills and saves cost, in turns.

    .venv/bin/python bench/gpu.py [--only NAME] [--repeats N] [--json]

Needs a GPU and PyTorch with CUDA, so `make bench` leaves it out. The program is examples/gpt_torch: bare, by
`oarlock run -n 1`, and beside the usual way to train such a network (programs/gpt_reference.py). Tokens are
random: they cost a GPU as much as any.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from arena import PROGRAMS, Arena, MeasurementError, arena
from gpu_faults import measure_chaos, measure_exact, measure_jax, measure_kills, measure_parts
from gpu_runs import EXAMPLES, lines, tokens, words
from question import Question, Row, Target, main, progress

from oarlock.run.gpu_facts.gpu_peaks import peak_of
from oarlock.system.gpus import nvml

_CONTEXT = 1024
_BATCH = {"124m": 198, "774m": 80}
_REFERENCE_BATCH = {"124m": 48, "774m": 16}
_STEPS, _SHOW = {"124m": 40, "774m": 24}, {"124m": 10, "774m": 6}
_ENOUGH = 400.0
_STATE = 10 << 10  # MiB


def measure_start(repeats: int) -> list[Row]:
    """The tiny network, eager: what is measured is everything before the first step."""
    taken: dict[str, list[float]] = {"bare": [], "oarlock": [], "warm": []}
    with arena() as place:
        args = ("--steps", "3", "--show", "1", "--save", "1000")
        for turn in range(repeats + 1):
            for side in taken:
                progress(f"start {turn} of {repeats}: {side}")
                options = ("--warm", "5m") if side == "warm" else ()
                run = words("bare" if side == "bare" else "oarlock", *args, options=options)
                began = time.time()
                first = [
                    at for at, line in lines(place, run, f"{side}-{turn}") if re.search(r"\bstep 1: ", line)
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
        file = tokens(place)
        for turn in range(repeats):
            for side in rates:
                progress(f"steps of {size}, {turn + 1} of {repeats}: {side}")
                rates[side].append(_rate(place, size, side, f"{size}-{side}-{turn}", file))
                # Said now: whoever cuts these ten minutes short keeps what was found.
                progress(f"{rates[side][-1]:.0f} tokens a second")
    ours = rates["oarlock"]
    peak = _peak()
    shares = [rate * _operations(size) / peak for rate in ours]
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
        Row(f"share of {peak / 1e12:.0f} TFLOP/s", "", shares, target=at_least),
    ]


def measure_deterministic(repeats: int) -> list[Row]:
    """What it costs to get the same bits again: kernels that always add in the same order."""
    rates: dict[tuple[str, ...], list[float]] = {("--deterministic",): [], (): []}
    with arena() as place:
        file = tokens(place)
        for turn in range(repeats):
            for more in rates:
                progress(f"deterministic, {turn + 1} of {repeats}: {' '.join(more) or 'not'}")
                name = f"exact-{turn}-{len(more)}"
                rates[more].append(_rate(place, "124m", "oarlock", name, file, *more))
    exact, usual = rates.values()
    return [Row("tokens a second, 124m, `--deterministic`", "", exact, usual, "without it")]


def _rate(place: Arena, size: str, side: str, name: str, file: str, *more: str) -> float:
    """Tokens per second, from the first printed line to the last."""
    steps, show = _STEPS[size], _SHOW[size]
    if side == "reference":
        batch = _REFERENCE_BATCH[size]
        steps *= _BATCH[size] // batch
        shape = ("--size", size, "--batch", str(batch), "--steps", str(steps), "--show", str(show))
        run: list[str | Path] = [sys.executable, "-u", PROGRAMS / "gpt_reference.py", *shape]
    else:
        batch = _BATCH[size]
        shape = ("--size", size, "--batch", str(batch), "--steps", str(steps), "--show", str(show))
        run = words(side, *shape, "--compile", "--tokens", file, "--save", "100000", *more)
    # One folder for all turns, so that only the first compiles: no rate includes that.
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(place.folder / "compiled")}
    said = lines(place, run, name, **compiled)
    marks = [at for at, line in said if re.search(r"\bstep \d+: ", line)]
    return (len(marks) - 1) * show * batch * _CONTEXT / (marks[-1] - marks[0])


def _peak() -> float:
    """Operations per second, dense, bf16; of a GPU whose name is unknown, as if it were an H100 or H200.

    The driver gives the name: torch would keep a context on the GPU, beside what is measured next."""
    library = nvml.open_library()
    gpus = library.read() if library is not None else []
    return (peak_of(gpus[0].name) if gpus else None) or 989e12


def _operations(size: str) -> float:
    """For one token, as the example counts them."""
    sys.path.insert(0, str(EXAMPLES / "gpt_torch"))
    from model import SIZES  # type: ignore[import-not-found]

    return float(replace(SIZES[size], vocabulary=50_257).operations)


def measure_saves(repeats: int) -> list[Row]:
    """10 GB of state on the GPU: how much later the next step is done because of the save."""
    ways = ("torch", "dcp.async_save", "torch.save", "fsdp", "jax", "numpy.save")
    stalls: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(repeats):
        for way in stalls:
            progress(f"saves, {turn + 1} of {repeats}: {way}")
            told = _saving(way)
            pairs = zip(told["stalls"], told["after"], strict=True)
            stalls[way] += [stall + max(0.0, after - told["step"]) for stall, after in pairs]
    beside = (
        ("torch", "dcp.async_save"),
        ("torch", "torch.save"),
        ("fsdp", "dcp.async_save"),
        ("jax", "numpy.save"),
    )
    return [
        Row(f"a save of 10 GB, {way}", "s", stalls[way], stalls[peer], f"`{peer}`", Target(0.05, of="ours"))
        for way, peer in beside
    ]


def _saving(way: str) -> dict[str, Any]:
    asked = ("--mib", str(_STATE), "--saves", "2", "--device", "cuda")
    run: list[str | Path] = [sys.executable, PROGRAMS / "saving.py", way, *asked]
    with arena() as place:  # it removes what a killed process leaves: 10 GB for each save
        done = subprocess.run(
            run, env=place.env, capture_output=True, text=True, timeout=_ENOUGH, check=False
        )
    if done.returncode != 0:
        raise MeasurementError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


QUESTIONS = [
    Question("start", "From the command to the first step on a GPU", measure_start, repeats=3),
    Question("steps-124m", "124 million weights on a GPU", partial(measure_steps, "124m"), repeats=3),
    Question("steps-774m", "774 million weights on a GPU", partial(measure_steps, "774m"), repeats=3),
    Question("kills", "A worker on a GPU is killed", partial(measure_kills, "eager", 1.0), repeats=3),
    Question(
        "compiled-kills",
        "A worker on a GPU is killed, compiled",
        partial(measure_kills, "compiled", 8.0),
        repeats=3,
    ),
    Question("parts", "What a kill on a GPU consists of", measure_parts, repeats=5),
    Question("jax", "A worker on a GPU is killed, JAX", measure_jax, repeats=3),
    Question("chaos", "20 faults on a compiled run on a GPU", measure_chaos, repeats=1),
    Question("exact", "The same bits on a GPU, killed or not", measure_exact, repeats=1),
    Question("deterministic", "The same bits on a GPU, the cost", measure_deterministic, repeats=3),
    Question("saves", "Saving 10 GB from a GPU", measure_saves, repeats=1),
]

if __name__ == "__main__":
    main(QUESTIONS, __doc__)
