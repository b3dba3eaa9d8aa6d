"""`oarlock.current()`: who this task is, where its folders are, and how to say how far it is.

Works with no launcher: then this is the only task there is, and the folders are beside the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.training.task import channel


@dataclass(frozen=True)
class Context:
    run: str
    role: str
    index: int
    rank: int  # over chief and workers; -1 for others
    world: int  # how many chiefs and workers
    generation: int
    seed: int
    data: Path
    checkpoints: Path
    model: Path
    logs: Path

    @property
    def is_chief(self) -> bool:
        """Whether this task leads: the chief, or worker 0 where there is none."""
        return self.rank == 0

    @property
    def is_launched(self) -> bool:
        return "OARLOCK_RUN" in os.environ

    def report(self, step: int, *, total: int | None = None, **metrics: Any) -> None:
        """Say how far this task is. Cheap enough for every step."""
        event = {"step": int(step), **metrics}
        if total is not None:
            event["total"] = int(total)
        channel.report(event)

    def note(self, text: str) -> None:
        """One line for the run's record."""
        channel.send({"kind": "note", "text": text})

    @property
    def should_stop(self) -> bool:
        """Whether the run was asked to end: finish the step, save, leave."""
        return channel.requested("stop")


def current() -> Context:
    env = os.environ
    alone = ("-1", "1") if "OARLOCK_RUN" in env else ("0", "1")
    # Another launcher's, torchrun's for one: not everybody there is the chief.
    rank, world = (env["RANK"], env["WORLD_SIZE"]) if _is_of_another(env) else alone
    return Context(
        run=env.get("OARLOCK_RUN", "local"),
        role=env.get("OARLOCK_ROLE", "worker"),
        index=int(env.get("OARLOCK_INDEX", "0")),
        rank=int(env.get("OARLOCK_RANK", rank)),
        world=int(env.get("OARLOCK_WORLD", world)),
        generation=int(env.get("OARLOCK_GENERATION", "1")),
        seed=int(env.get("OARLOCK_SEED", "0")),
        data=Path(env.get("DATA_DIR", "data")),
        checkpoints=Path(env.get("CHECKPOINT_DIR", "checkpoints")),
        model=Path(env.get("MODEL_DIR", "model")),
        logs=Path(env.get("LOG_DIR", "logs")),
    )


def _is_of_another(env: Mapping[str, str]) -> bool:
    return "OARLOCK_RUN" not in env and env.get("RANK", "").isdigit() and env.get("WORLD_SIZE", "").isdigit()
