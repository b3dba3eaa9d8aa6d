"""Attempts: waits that grow, and what is tried again until it succeeds or its time is over."""

from __future__ import annotations

import pytest

from oarlock.system.backoff import Backoff, retry


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 8.0)
    for usual in (1, 2, 4):
        assert usual / 2 <= backoff.failed() <= usual * 1.5
    assert [backoff.failed() <= 8 for _ in range(100)] == [True] * 100
    backoff.succeeded()
    assert backoff.failed() <= 1.5


def test_what_fails_is_tried_again() -> None:
    left = [OSError("first"), ValueError("second")]

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    assert retry(attempt, (OSError, ValueError), 300, (0, 0)) == "done"


def test_the_last_error_is_raised_once_the_time_is_over() -> None:
    tried: list[int] = []

    def attempt() -> None:
        tried.append(len(tried))
        raise OSError(f"attempt {len(tried)}")

    with pytest.raises(OSError, match=r"attempt \d+") as caught:
        retry(attempt, OSError, 0.02, (0.001, 0.002))
    assert str(caught.value) == f"attempt {len(tried)}"
    assert len(tried) > 1


def test_other_errors_are_not_tried_again() -> None:
    def attempt() -> None:
        raise KeyError("other")

    with pytest.raises(KeyError):
        retry(attempt, OSError, 300, (0, 0))
