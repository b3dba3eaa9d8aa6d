"""Stands in for the leading agent around a conductor: it leads, and has neither checkpoints nor snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Checkpoints:
    """Names in a list, and their scores."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.scores: dict[str, dict[str, Any]] = {}
        self.is_followed = False

    def names(self) -> list[str]:
        return self.held

    def scored(self) -> list[str]:
        return list(self.scores)

    def keep_score(self, name: str, metrics: Mapping[str, Any]) -> None:
        self.scores[name] = dict(metrics)

    def set_followed(self, is_followed: bool) -> None:
        self.is_followed = is_followed


class LoneLeader:
    def __init__(self) -> None:
        self.leads = True
        self.checkpoints = Checkpoints()
        self.trouble: str | None = None
        self.fences: list[int] = []  # generations that took the checkpoints over

    def is_leading(self) -> bool:
        return self.leads

    def take_over_checkpoints(self, generation: int) -> tuple[list[str], str | None]:
        self.fences.append(generation)
        return self.checkpoints.held, self.trouble

    def written_files(self) -> str:
        return ""

    def before_verdict(self, state: str, then: Callable[[], None]) -> None:
        then()
