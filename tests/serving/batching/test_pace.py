"""What is learned from the time of batches."""

from __future__ import annotations

import sys
import threading

from oarlock.serving.batching.pace import Pace


def test_nothing_is_known_before_the_first_batch() -> None:
    pace = Pace(64)
    assert pace.seconds(1000) == 0
    assert pace.rows(1000) == 64


def test_a_queue_takes_as_long_as_its_rows_took_before() -> None:
    pace = Pace(64)
    pace.note(1, 0.001)
    assert pace.seconds(500) == 0.5


def test_larger_batches_are_taken_as_long_as_they_are_faster() -> None:
    pace = Pace(64)
    for rows in (1, 2, 4, 8, 16, 32, 64):
        pace.note(rows, 0.001 + rows * 0.0001)  # a fixed cost, which more rows share
    assert pace.rows(1000) == 64
    assert abs(pace.seconds(640) - 10 * (0.001 + 0.0064)) < 1e-9


def test_a_smaller_batch_that_is_as_fast_is_preferred() -> None:
    pace = Pace(64)
    for rows in (1, 2, 4, 8, 16, 32, 64):
        pace.note(rows, max(0.008, rows * 0.001))  # from 8 rows on, each row takes the same
    assert pace.rows(1000) == 8


def test_a_larger_batch_is_tried_again_now_and_then() -> None:
    pace = Pace(64)
    for rows in (1, 8, 64):
        pace.note(rows, rows * 0.001)
    sizes = [pace.rows(1000) for _ in range(200)]
    assert sizes.count(64) == 3
    assert sizes.count(1) == 197


def test_one_slow_batch_changes_little() -> None:
    pace = Pace(64)
    for _ in range(5):
        pace.note(1, 0.001)
    pace.note(1, 0.1)
    assert pace.seconds(1) < 0.012
    for _ in range(10):
        pace.note(1, 0.001)
    assert pace.seconds(1) < 0.0011


def test_the_limit_is_never_above_the_settings() -> None:
    pace = Pace(3)
    for _ in range(10):
        pace.note(2, 0.001)
    assert pace.rows(100) <= 3


def test_one_thread_asks_while_another_learns() -> None:
    """A size that is new made one request in forty thousand fail."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            pace = Pace(1 << 16)
            pace.note(1, 0.001)
            learning = threading.Thread(target=_learn, args=(pace,))
            learning.start()
            while learning.is_alive():
                assert pace.seconds(100) > 0
            learning.join()
    finally:
        sys.setswitchinterval(before)


def _learn(pace: Pace) -> None:
    for power in range(17):
        pace.note(1 << power, 0.001 * (1 << power))
