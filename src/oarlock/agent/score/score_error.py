"""Why there are no scores, for the person at the keyboard. Pure."""

from __future__ import annotations


class ScoreError(Exception):
    """Checkpoints cannot be scored; `code` is the exit code of the program that failed."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
