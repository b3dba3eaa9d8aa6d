"""Durations, sizes and replicas: what people may write, and how it is printed back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oarlock.quantities import Duration, Replicas, Size


@pytest.mark.parametrize(
    ("written", "seconds", "printed"),
    [
        (90, 90, "1m30s"),
        ("90", 90, "1m30s"),
        ("90s", 90, "1m30s"),
        ("10m", 600, "10m"),
        ("1h30m", 5400, "1h30m"),
        ("2d", 172800, "2d"),
        ("1.5h", 5400, "1h30m"),
        (0.25, 0.25, "0.25s"),
        ("1m0.5s", 60.5, "1m0.5s"),
        (0, 0, "0s"),
        ("3650d", 315360000, "3650d"),
    ],
)
def test_a_duration_is_read_and_printed(written: Any, seconds: float, printed: str) -> None:
    duration = Duration.parse(written)
    assert (duration.seconds, str(duration)) == (seconds, printed)
    assert Duration.parse(printed) == duration


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("soon", 'expected a duration such as 90s, 10m or 1h30m, found "soon"'),
        ("", 'expected a duration such as 90s, 10m or 1h30m, found ""'),
        ("30m1h", 'expected a duration such as 90s, 10m or 1h30m, found "30m1h"'),
        ("10m\n", 'expected a duration such as 90s, 10m or 1h30m, found "10m\\n"'),
        ("\u0661s", 'expected a duration such as 90s, 10m or 1h30m, found "\u0661s"'),
        (True, "expected a duration such as 90s, 10m or 1h30m, found true"),
        ([1], "expected a duration such as 90s, 10m or 1h30m, found a list"),
        (-1, "expected a duration between 0 and 3650d, found -1"),
        (float("nan"), "expected a duration between 0 and 3650d, found nan"),
        (float("inf"), "expected a duration between 0 and 3650d, found inf"),
        (10**400, "expected a duration between 0 and 3650d, found 1000000000000000000000000000000000000..."),
        ("9999d", 'expected a duration between 0 and 3650d, found "9999d"'),
    ],
)
def test_what_is_no_duration_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(expected|min)") as refused:
        Duration.parse(written)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("written", "size", "printed"),
    [
        ("4Gi", 4 * 2**30, "4Gi"),
        ("512Mi", 512 * 2**20, "512Mi"),
        ("1G", 10**9, "1G"),
        (2000000, 2000000, "2M"),
        ("2000000", 2000000, "2M"),
        ("1.5Gi", 1536 * 2**20, "1536Mi"),
        ("1k", 1000, "1k"),
        ("0.3", 1, "1"),
        ("123456789", 123456789, "123456789"),
    ],
)
def test_a_size_is_read_and_printed(written: Any, size: int, printed: str) -> None:
    found = Size.parse(written)
    assert (found.bytes, str(found)) == (size, printed)
    assert Size.parse(printed) == found


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("4gb", 'expected a size such as 4Gi, 512Mi or 2G, found "4gb"; did you mean 4G?'),
        ("4GB", 'expected a size such as 4Gi, 512Mi or 2G, found "4GB"; did you mean 4G?'),
        ("4gi", 'expected a size such as 4Gi, 512Mi or 2G, found "4gi"; did you mean 4Gi?'),
        ("512m", 'expected a size such as 4Gi, 512Mi or 2G, found "512m"; did you mean 512M?'),
        ("512 MB", 'expected a size such as 4Gi, 512Mi or 2G, found "512 MB"; did you mean 512M?'),
        ("4 bananas", 'expected a size such as 4Gi, 512Mi or 2G, found "4 bananas"'),
        ("lots", 'expected a size such as 4Gi, 512Mi or 2G, found "lots"'),
        (1.5, "expected a size such as 4Gi, 512Mi or 2G, found 1.5"),
        (-1, "expected a size such as 4Gi, 512Mi or 2G, found -1"),
        (0, "expected a size between 1 byte and 8191Pi, found 0"),
        ("9999Pi", 'expected a size between 1 byte and 8191Pi, found "9999Pi"'),
    ],
)
def test_what_is_no_size_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(expected|min)") as refused:
        Size.parse(written)
    assert str(refused.value) == message


def test_quantities_compare_by_value() -> None:
    assert Duration.parse("90s") == Duration.parse("1m30s") < Duration.parse("1h")
    assert Size.parse("1Gi") > Size.parse("1G") == Size.parse(10**9)
    assert Replicas(4) == Replicas(4, 4) == Replicas.parse("4")


def test_whatever_is_printed_is_read_back_as_the_same() -> None:
    draw = random.Random(7)
    for _ in range(2000):
        duration = Duration.parse(draw.randrange(10**9) / draw.choice((1, 10, 1000)) % Duration.LONGEST)
        assert Duration.parse(str(duration)) == duration
        size = Size.parse(draw.randrange(1, 1 << draw.randrange(1, 44)) * draw.choice((1, 1000, 1024**2)))
        assert Size.parse(str(size)) == size


@pytest.mark.parametrize(
    ("written", "least", "most", "printed"),
    [
        (4, 4, 4, "4"),
        ("4", 4, 4, "4"),
        ("2..8", 2, 8, "2..8"),
        (" 2 .. 8 ", 2, 8, "2..8"),
        ("3..3", 3, 3, "3"),
    ],
)
def test_replicas_are_a_number_or_a_range(written: Any, least: int, most: int, printed: str) -> None:
    replicas = Replicas.parse(written)
    assert (replicas.min, replicas.max, str(replicas), replicas.elastic) == (
        least,
        most,
        printed,
        least < most,
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0, "expected 1 or more, found 0"),
        (-2, "expected 1 or more, found -2"),
        ("0..4", "expected 1 or more, found 0"),
        ("4..0", "expected 1 or more, found 0"),
        ("8..2", "min is larger than max in 8..2"),
        (100_001, "expected at most 100000, found 100001"),
        ("2-8", 'expected a whole number or min..max, such as 4 or 2..8, found "2-8"'),
        ("2...8", 'expected a whole number or min..max, such as 4 or 2..8, found "2...8"'),
        (2.0, "expected a whole number or min..max, such as 4 or 2..8, found 2.0"),
        (True, "expected a whole number or min..max, such as 4 or 2..8, found true"),
    ],
)
def test_what_is_no_number_of_replicas_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(expected|min)") as refused:
        Replicas.parse(written)
    assert str(refused.value) == message
