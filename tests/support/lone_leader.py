"""Stands in for the leading agent around a conductor: it leads, and has neither checkpoints nor snapshots."""

from __future__ import annotations

from collections.abc import Callable


class LoneLeader:
    def __init__(self) -> None:
        self.leads = True
        self.checkpoints: list[str] = []
        self.trouble: str | None = None
        self.fences: list[int] = []  # generations that took the checkpoints over

    def is_leading(self) -> bool:
        return self.leads

    def take_over_checkpoints(self, generation: int) -> tuple[list[str], str | None]:
        self.fences.append(generation)
        return self.checkpoints, self.trouble

    def written_files(self) -> str:
        return ""

    def before_verdict(self, state: str, then: Callable[[], None]) -> None:
        then()
