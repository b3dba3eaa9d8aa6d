"""A program whose ranks train in step, as with a collective: nobody gets through a step before all are in it.

Every rank appends to a file of its own what it did: `step N`, `save N`, `halt N`. A rank goes on from the
checkpoint that rank 0 has written, as real ones do.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.gangs import Gang

IN_STEP = """
import os, random, sys, time
from pathlib import Path
import oarlock
from oarlock.training.steps.gate import Gate
me = oarlock.current()
folder = Path(os.environ["OARLOCK_TEST_FOLDER"])
mine = (folder / f"{me.generation}-{me.rank}").open("a", buffering=1)
entered = open(folder / f"entered-{me.generation}-{me.rank}", "wb", buffering=0)
others = {}
def together(step):
    # A byte for every step that a rank has entered: a collective without a network.
    entered.write(b".")
    for rank in range(me.world):
        name = folder / f"entered-{me.generation}-{rank}"
        while others.get(rank, 0) <= step - first:
            others[rank] = name.stat().st_size if name.exists() else 0
            time.sleep(0.0002)
kept = folder / "kept"
first = int(kept.read_text()) if kept.exists() else 0
def save(step):
    if me.rank == 0:
        (folder / "part").write_text(str(step))
        (folder / "part").replace(kept)
def train(total, pause=0.001, saves=0, gate=None):
    gate = gate or Gate(first)
    for step in range(first, total):
        if saves and me.rank == 0 and step % saves == saves - 1:
            gate.ask("save")
        due = gate.enter(step)
        for purpose in sorted(due, reverse=True):
            mine.write(f"{purpose} {step}\\n")
            save(step)
        if "halt" in due:
            os._exit(143)
        mine.write(f"step {step}\\n")
        time.sleep(pause() if callable(pause) else pause)
        together(step)
        me.report(step + 1, total=total)
    save(total)
    gate.leave()
"""


def did(folder: Path, what: str, generation: int, rank: int) -> list[int]:
    """The steps of which this rank noted `what`, in order."""
    path = folder / f"{generation}-{rank}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(f"{what} ")]


def until_done(gang: Gang, folder: Path, count: int, generation: int = 1, rank: int = 0) -> Gang:
    """Until this rank has done `count` steps and the conductor has heard of everybody's gate, which
    is told before the first report."""

    def is_done(gang: Gang) -> bool:
        heard = {event["task"] for event in gang.of("report", generation=generation)}
        has_all = gang.state.generation == generation and heard == set(gang.state.tasks)
        return has_all and len(did(folder, "step", generation, rank)) > count

    return gang.until(is_done, f"{count} steps of rank {rank} in generation {generation}")
