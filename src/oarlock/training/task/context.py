"""`oarlock.current()`: this task's role and rank, its folders, and how it reports progress.

Works without a launcher: then this is the only task, and the folders are beside the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.task import channel


@dataclass(frozen=True)
class Context:
    """This task, as Oarlock started it."""

    run: str
    role: str
    index: int
    rank: int  # among chief and workers; -1 for other roles
    world: int  # the number of chiefs and workers
    generation: int
    seed: int
    data: Path
    checkpoints: Path
    eval: Path
    model: Path
    logs: Path
    sources: Path  # where an ingest's sources were downloaded

    @property
    def is_chief(self) -> bool:
        """Whether this task has rank 0: the chief, or worker 0 if there is no chief."""
        return self.rank == 0

    @property
    def is_evaluator(self) -> bool:
        """Whether this task scores checkpoints that other tasks train."""
        return self.role == "evaluator"

    @property
    def is_launched(self) -> bool:
        """Whether Oarlock started this process; False for `python train.py`."""
        return "OARLOCK_RUN" in os.environ

    def report(
        self,
        step: int | None = None,
        *,
        total: int | None = None,
        flops: float | None = None,
        peak: float | None = None,
        tokens_per_step: float | None = None,
        **metrics: Any,
    ) -> None:
        """Report progress and metrics. Cheap enough for every step.

        flops: operations in one step of this task, on its part of the batch, forward and backward. Pass it
            once; it holds for later steps. From then on reports include `flops_per_second` and, on known
            GPUs, `mfu`. Pass it without a step in a program whose steps Oarlock sees by itself.
        peak: operations per second of all GPUs of this task together, if Oarlock does not know them.
        tokens_per_step: tokens in this task's part of the batch; reports then include `tokens_per_second`.
        """
        costs = (flops, peak, tokens_per_step)
        channel.expect(*costs)
        if step is None:
            if metrics or total is not None or costs == (None, None, None):
                raise TypeError(
                    "report() needs a step; only flops, peak and tokens_per_step can be told without one"
                )
            return
        event = {"step": int(step), **metrics}
        if total is not None:
            event["total"] = int(total)
        channel.report(event)

    def note(self, text: str) -> None:
        """Add one line to the run's record."""
        channel.send({"kind": "note", "text": text})

    @property
    def should_stop(self) -> bool:
        """Whether the run was asked to stop: finish the step, save, exit."""
        return channel.requested("stop")


def current() -> Context:
    """Return the task that this process runs."""
    env = os.environ
    alone = ("-1", "1") if "OARLOCK_RUN" in env else ("0", "1")
    # Set by another launcher, such as torchrun: there, not every process is the chief.
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
        eval=Path(env.get("EVAL_DIR", "eval")),
        model=Path(env.get("MODEL_DIR", "model")),
        logs=Path(env.get("LOG_DIR", "logs")),
        sources=Path(env.get("SOURCES_DIR", "sources")),
    )


def _is_of_another(env: Mapping[str, str]) -> bool:
    return "OARLOCK_RUN" not in env and env.get("RANK", "").isdigit() and env.get("WORLD_SIZE", "").isdigit()
