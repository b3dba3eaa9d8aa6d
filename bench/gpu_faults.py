"""On one GPU: what a kill costs, eager, compiled and with JAX, 20 faults; whether the bits stay the same."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arena import BIN, PROGRAMS, Arena, MeasurementError, arena
from gpu_runs import lines, tokens, words
from question import Row, Target, progress

_SETTLED = 8.0  # seconds of steps before a kill: a checkpoint is there, and imports for restarts are done
_FAULTS = 20
_PARTS = {  # as gpt_parts.py names them, in this order
    "dead": "until the killed process is gone",
    "main": "until the next one runs the program",
    "device": "until torch has the GPU",
    "network": "until the network is there",
    "state": "until the checkpoint is restored",
    "kernels": "until the kernels that load meanwhile are there",
    "step": "until the first step is done",
    "shown": "until `oarlock run` prints it",
}
_ENOUGH = 500.0


def measure_kills(way: str, limit: float, repeats: int) -> list[Row]:
    """SIGKILL to the next step, at 124m: eager, or compiled with what the first compilation left behind."""
    progress(f"kills: {way}")
    with arena() as place:
        more = ("--compile",) if way == "compiled" else ()
        taken = [at - killed for killed, at in _kills(place, _endless(place, *more), way, repeats)]
    return [Row(f"killed to the next step, 124m {way}", "s", taken, target=Target(limit, of="ours"))]


def measure_parts(repeats: int) -> list[Row]:
    """Where the time from a kill to the next step goes, eager, one part after the other."""
    progress("parts of a kill")
    taken: dict[str, list[float]] = {part: [] for part in _PARTS}
    with arena() as place:
        file = place.folder / "parts"
        run = _endless(place, program=PROGRAMS / "gpt_parts.py")
        kills = list(_kills(place, run, "parts", repeats, PARTS=str(file)))
        parts = [dict(json.loads(line)) for line in file.read_text().splitlines()]
        ends = [one["t"] for one in place.events() if one["kind"] == "task" and one["state"] == "ended"]
        del parts[0]  # the first start follows no kill
        for (before, at), dead, done in zip(kills, ends, parts, strict=True):
            for part, when in {"dead": dead, **done, "shown": at}.items():
                taken[part].append(when - before)
                before = when
    return [Row(what, "s", taken[part]) for part, what in _PARTS.items()]


def _endless(place: Arena, *more: str, program: Path | None = None) -> list[str | Path]:
    """A run of 124 million weights that only a signal ends."""
    shape = ("--size", "124m", "--batch", "8", "--steps", "1000000", "--show", "1")
    return words("oarlock", *shape, "--tokens", tokens(place), "--save", "5s", *more, program=program)


def measure_jax(repeats: int) -> list[Row]:
    """gpt_jax: SIGKILL to the next step, beside the first step of a process that starts cold."""
    with arena() as place:
        args = ("--data", _text(place), "--show", "1", "--save", "5s", "--steps")
        cold = []
        for turn in range(repeats):
            progress(f"JAX, {turn + 1} of {repeats}: python train.py")
            began = time.time()
            said = list(lines(place, words("bare", *args, "3", example="gpt_jax"), f"cold-{turn}"))
            cold.append(next(at for at, line in said if re.search(r"\bstep 1: ", line)) - began)
        progress("JAX: kills")
        run = words("oarlock", *args, "1000000", example="gpt_jax")
        taken = [at - killed for killed, at in _kills(place, run, "jax", repeats)]
    return [Row("killed to the next step, gpt_jax", "s", taken, cold, "first step of `python train.py`")]


def _kills(
    place: Arena, run: Sequence[str | Path], name: str, repeats: int, **variables: str
) -> Iterator[tuple[float, float]]:
    """Kill the worker so many times; when it was killed, and when the next step was printed."""
    killed = first = 0.0
    done, is_dead = 0, False
    for at, line in lines(place, run, name, **variables):
        if re.search(r"\| generation \d+: ", line):
            first, is_dead = 0.0, False  # what comes after this line is not from before the kill
        if is_dead or not re.search(r"\bstep \d+: ", line):
            continue
        if not first:
            first = at
            if killed:
                yield killed, at
                done += 1
            if done == repeats:
                return
        if at - first >= _SETTLED:
            killed, is_dead = time.time(), True
            os.kill(_worker(place), signal.SIGKILL)


def _worker(place: Arena) -> int:
    tasks = [event for event in place.events() if event["kind"] == "task" and event.get("pid")]
    return int(tasks[-1]["pid"])


def measure_chaos(repeats: int) -> list[Row]:
    """Faults of all kinds on a compiled run: how many it recovers from, and its goodput."""
    reports = []
    for turn in range(repeats):
        progress(f"chaos, {turn + 1} of {repeats}")
        with arena() as place:
            for _, line in lines(place, _endless(place, "--compile"), "chaos"):
                if re.search(r"\bstep \d+: ", line):
                    reports.append(_chaos(place))
                    break
    recovered = [report["recovered"] for report in reports]
    took = [report["recovery"]["median"] for report in reports]
    goodput = [report["goodput"] for report in reports]
    return [
        Row(f"recovered from, of {_FAULTS} faults", "", recovered, target=Target(_FAULTS, "ours", True)),
        Row("recovery, median", "s", took),
        Row("goodput meanwhile", "", goodput),
    ]


def _chaos(place: Arena) -> dict[str, Any]:
    asked = ("--faults", str(_FAULTS), "--every", "1s", "--pause", "1s", "--seed", "1", "--yes", "--json")
    done = subprocess.run(
        [BIN / "oarlock", "chaos", *asked],
        env=place.env,
        capture_output=True,
        text=True,
        timeout=_ENOUGH,
        check=False,
    )
    if done.returncode != 0:
        raise MeasurementError(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_exact(repeats: int) -> list[Row]:
    """How many of the weights differ after a run that was killed twice, and after one that was not."""
    rows = []
    for example in ("gpt_torch", "gpt_jax"):
        differing = []
        for turn in range(repeats):
            progress(f"exact, {turn + 1} of {repeats}: {example}")
            left, killed = (_weights(example, kills) for kills in (0, 2))
            differing.append(float(sum(left[name] != killed[name] for name in left)))
        what = f"tensors that differ after two kills, {example}"
        rows.append(Row(what, "", differing, target=Target(0, of="ours")))
    return rows


def _weights(example: str, kills: int) -> dict[str, bytes]:
    """The weights in the model that a run leaves, as bytes."""
    with arena() as place:
        args = ("--data", _text(place), "--steps", "400", "--save", "50", "--show", "1", "--deterministic")
        done = 0
        for _, line in lines(place, words("oarlock", *args, example=example), example):
            step = re.search(r"\bstep (\d+): ", line)
            if step and int(step[1]) >= 120 * (done + 1) and done < kills:
                os.kill(_worker(place), signal.SIGKILL)
                done += 1
        restarts = sum(event["kind"] == "restart" for event in place.events())
        if restarts != kills:
            raise MeasurementError(f"{restarts} restarts after {kills} kills")
        return _stored(place.home)


def _stored(home: Path) -> dict[str, bytes]:
    import numpy as np
    import torch

    for path in home.rglob("model.pt"):
        weights = torch.load(path, weights_only=True)["weights"]
        return {name: weight.numpy().tobytes() for name, weight in weights.items()}
    [path] = home.rglob("weights.npz")
    with np.load(path) as stored:
        return {name: array.tobytes() for name, array in stored.items()}


def _text(place: Arena) -> str:
    """Something to read: our own sources."""
    path = place.folder / "text.txt"
    if not path.exists():
        sources = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
        path.write_text("\n".join(source.read_text() for source in sources))
    return str(path)
