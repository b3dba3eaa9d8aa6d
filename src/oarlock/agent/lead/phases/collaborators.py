"""What conductor and phase machine need besides the agents that get their wishes. Pure.

The leading agent passes the real objects; tests pass lists. Neither opens a file or a socket itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from oarlock.agent.net.deadlines import Action
from oarlock.run.run_state import RunState


class Journal(Protocol):
    """The run's record, as far as the conductor writes to it: `run_record.Record`."""

    @property
    def state(self) -> RunState:
        """The state that all events so far add up to."""

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Add an event."""

    def end(self, state: str, code: int, **fields: Any) -> None:
        """Add the verdict, as the last event."""


class SeatOrder(Protocol):
    """Which machine holds a seat: `machine_order.MachineOrder`."""

    def take(self, seat: str, machine: str) -> str | None:
        """Give the seat to this machine. Returns None, or the reason for a refusal."""


class ScoredCheckpoints(Protocol):
    """The run's checkpoints and their scores: `checkpoint_scores.CheckpointScores`."""

    def names(self) -> list[str]:
        """The checkpoints to resume from, newest first."""

    def scored(self) -> list[str]:
        """The checkpoints that an evaluator has scored."""

    def keep_score(self, name: str, metrics: Mapping[str, Any]) -> None:
        """Note the score of a checkpoint, for retention and for the evaluator's next start."""

    def set_followed(self, is_followed: bool) -> None:
        """Note whether an evaluator is at work. Retention then gives it time to score."""


class Surroundings(Protocol):
    """The leading agent around the conductor."""

    @property
    def checkpoints(self) -> ScoredCheckpoints:
        """The run's checkpoints, in the folder where the leader task saves them."""

    def is_leading(self) -> bool:
        """False once another agent leads this run."""

    def take_over_checkpoints(self, generation: int) -> tuple[list[str], str | None]:
        """Fence off older generations. Returns the checkpoints to resume from, newest first; any trouble."""

    def written_files(self) -> str:
        """The version of the files that the program wrote next to itself, for other machines to fetch."""

    def before_verdict(self, state: str, then: Action) -> None:
        """Do what is left to do once no task runs, then call `then`."""
