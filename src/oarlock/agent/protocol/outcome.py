"""What is known of one task of a generation, as its host tells it to the conductor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    name: str
    launch: int = 1  # counts starts within one generation
    began: float = 0.0
    code: int | None = None  # None: it runs
    signal: int | None = None
    ours: bool = False  # we ended it: not a failure
    error: dict[str, Any] | None = None  # the exception it reported
    failed_at: float | None = None
    starved: bool = False  # the kernel killed it for memory

    @property
    def is_alive(self) -> bool:
        return self.code is None
