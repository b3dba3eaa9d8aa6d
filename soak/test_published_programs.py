"""Programs as their authors publish them, under `oarlock run` and torchrun: exit code, seconds to the first
step, and what each resumed from after one SIGKILL. Prints the table of docs/measurements.md.

    .venv/bin/python -m pytest -s soak/test_published_programs.py

Fetches with git and pip. A program that cannot be fetched, or has too few GPUs here, is skipped and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.published_programs import FETCHED, INSTALLED, ON_GPUS, Program
from tests.support.published_runs import Seen, killed, ours, peer, watch
from tests.support.published_sources import NotFetched, place

TURNS = 2  # the better one counts
_rows: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print it when all are through."""
    yield
    print("\n\n| program | workers | exit code | first step | under torchrun | one worker killed |")
    print("|---|---|---|---|---|---|")
    print("\n".join(_rows))
    print(f"\nload: {os.getloadavg()[1]:.1f}")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", [*INSTALLED, *FETCHED, *ON_GPUS], ids=lambda program: program.name)
def test_runs_as_published(home: Path, tmp_path: Path, program: Program) -> None:
    if program in ON_GPUS and torch.cuda.device_count() < program.workers:
        _skip(program, f"needs {program.workers} CUDA devices; there are {torch.cuda.device_count()}")
    try:
        place(program, tmp_path / "first")
    except NotFetched as error:
        _skip(program, f"not fetched: {error}")
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(TURNS):
        for side, command in (("ours", ours(program)), ("peer", peer(program))):
            if side == "ours" or program.has_peer:
                seen = watch(program, command, *place(program, tmp_path / f"{side}-{turn}"))
                assert seen.code == 0, f"{command}\n{seen.told()}"
                assert seen.first_step is not None, f"no step was said\n{seen.told()}"
                times[side].append(seen.first_step)
    hurt = killed(program, *place(program, tmp_path / "killed"))
    assert hurt.code == 0, hurt.told()
    assert hurt.generation == 2, hurt.told()
    first = [f"{min(taken):.1f} s" if taken else "" for taken in times.values()]
    _rows.append(f"| {program.name} | {program.workers} | 0 | {' | '.join(first)} | {_resumed(hurt)} |")
    print(f"\n{_rows[-1]}", flush=True)


def _resumed(seen: Seen) -> str:
    before, after = seen.number(1, -1), seen.number(2, 0)
    if after is None:
        return "at its start; ran to the end"
    return f"after step {before}; next was {after}"


def _skip(program: Program, reason: str) -> None:
    _rows.append(f"| {program.name} | {program.workers} | skipped: {reason} | | | |")
    pytest.skip(f"{program.name}: {reason}")
