"""Durations, sizes and replica counts as people write them: `1h30m`, `4Gi`, `2..8`.

Each is immutable, compares by value, parses text and prints text that parses back to the same value.
A parse that fails raises ValueError with the whole sentence. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from oarlock.wording import nearest, unexpected

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,15})?"


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time, to the millisecond."""

    seconds: float

    EXPECTED: ClassVar[str] = "a duration such as 90s, 10m or 1h30m"
    # Ten years: beyond any run, and far inside what timeouts of the operating system can hold.
    LONGEST: ClassVar[int] = 3650 * 86400
    PATTERN: ClassVar[str] = _NUMBER + f"|(?=[0-9])({_NUMBER}d)?({_NUMBER}h)?({_NUMBER}m)?({_NUMBER}s)?"

    @classmethod
    def parse(cls, written: Any) -> Duration:
        """Read seconds or a text such as `1h30m`. Raises ValueError."""
        if isinstance(written, Duration):
            return written
        if isinstance(written, bool) or not isinstance(written, (int, float, str)):
            raise unexpected(cls.EXPECTED, written)
        seconds = _seconds(written) if isinstance(written, str) else written
        if seconds is None:
            raise unexpected(cls.EXPECTED, written)
        if not 0 <= seconds <= cls.LONGEST:
            raise unexpected("a duration between 0 and 3650d", written)
        return cls(round(seconds, 3))

    def __str__(self) -> str:
        left, text = round(self.seconds * 1000), ""
        for unit, milliseconds in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
            count, left = divmod(left, milliseconds)
            text += f"{count}{unit}" if count else ""
        return text + f"{left / 1000:g}s" if left or not text else text


def _seconds(text: str) -> float | None:
    matched = re.fullmatch(Duration.PATTERN, text)
    if matched is None:
        return None
    if not any(matched.groups()):
        return float(text)
    return sum(float(part[:-1]) * unit for part, unit in zip(matched.groups(), (86400, 3600, 60, 1)) if part)


@dataclass(frozen=True, order=True)
class Size:
    """A number of bytes, written with Kubernetes' suffixes: Ki Mi Gi Ti Pi, k M G T P."""

    bytes: int

    EXPECTED: ClassVar[str] = "a size such as 4Gi, 512Mi or 2G"
    UNITS: ClassVar[dict[str, int]] = {
        **{unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
        **{unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P"))},
    }
    LARGEST: ClassVar[int] = 2**63 - 1
    PATTERN: ClassVar[str] = f"({_NUMBER})(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?"

    @classmethod
    def parse(cls, written: Any) -> Size:
        """Read bytes or a text such as `4Gi`. Raises ValueError."""
        if isinstance(written, Size):
            return written
        if isinstance(written, bool) or not isinstance(written, (int, str)):
            raise unexpected(cls.EXPECTED, written)
        matched = re.fullmatch(cls.PATTERN, str(written))
        if matched is None:
            raise unexpected(cls.EXPECTED, written, _other_spelling(str(written)))
        count, unit = matched.groups()
        size = cls(_rounded_up(count, cls.UNITS[unit or ""]))
        if not 1 <= size.bytes <= cls.LARGEST:
            raise unexpected("a size between 1 byte and 8191Pi", written)
        return size

    def __str__(self) -> str:
        exact = [f"{self.bytes // unit}{name}" for name, unit in self.UNITS.items() if self.bytes % unit == 0]
        return min(exact, key=len)


def _rounded_up(count: str, unit: int) -> int:
    """Count a fraction of a byte as a byte, as Kubernetes does; in integers, so that nothing is lost."""
    whole, _, fraction = count.partition(".")
    parts: int = 10 ** len(fraction)
    return -(-int(whole + fraction) * unit // parts)


def _other_spelling(text: str) -> str:
    """The spelling that was meant: people write `4gb`, `4GB` and `4gi` for 4G and 4Gi."""
    matched = re.fullmatch(r"([0-9.]+) *([a-zA-Z]+)", text)
    if matched is None:
        return ""
    meant = nearest(
        matched[2].removesuffix("b").removesuffix("B"), ("Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T")
    )
    return f"did you mean {matched[1]}{meant}?" if meant else ""


@dataclass(frozen=True)
class Replicas:
    """The number of a role's members, or `min..max` if the gang may shrink and grow."""

    min: int
    max: int = 0  # 0 stands for the same as min

    EXPECTED: ClassVar[str] = "a whole number or min..max, such as 4 or 2..8"
    PATTERN: ClassVar[str] = r" *([0-9]{1,9}) *(?:\.\. *([0-9]{1,9}) *)?"
    MOST: ClassVar[int] = 100_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "max", self.max or self.min)
        if self.min < 1:
            raise ValueError(f"expected 1 or more, found {self.min}")
        if self.min > self.max:
            raise ValueError(f"min is larger than max in {self}")
        if self.max > self.MOST:
            raise ValueError(f"expected at most {self.MOST}, found {self.max}")

    @classmethod
    def parse(cls, written: Any) -> Replicas:
        """Read a number or a range such as `2..8`. Raises ValueError."""
        if isinstance(written, Replicas):
            return written
        if isinstance(written, int) and not isinstance(written, bool):
            return cls(written)
        matched = re.fullmatch(cls.PATTERN, written) if isinstance(written, str) else None
        if matched is None:
            raise unexpected(cls.EXPECTED, written)
        if matched[2] is not None and int(matched[2]) < 1:
            raise unexpected("1 or more", int(matched[2]))
        return cls(int(matched[1]), int(matched[2] or 0))

    @property
    def elastic(self) -> bool:
        """Whether the gang may shrink and grow."""
        return self.min < self.max

    def __str__(self) -> str:
        return f"{self.min}..{self.max}" if self.min != self.max else str(self.min)
