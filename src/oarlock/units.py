"""Durations, sizes, metrics and counts for people. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal

_BINARY = {unit: 1024**power for power, unit in zip(range(6, 0, -1), ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"))}


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units: 0.4s, 42s, 1m20s, 2h05m, 3d04h."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes // 1440}d{minutes // 60 % 24:02d}h"


def size(count: float) -> str:
    """Return a number of bytes: 17 B, 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def amount(count: Decimal, resource: str) -> str:
    """Return what a cluster has of a resource: memory and storage as 1.5Gi, all else as it is."""
    if resource.endswith(("memory", "storage")):
        for unit, scale in _BINARY.items():
            if abs(count) >= scale:
                return _plain(round(count / scale, 2)) + unit
    return _plain(count)


def _plain(count: Decimal) -> str:
    digits = f"{count:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def number(value: Any) -> str:
    """Return a metric in a few characters; text (such as nan) is only cut."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)[:20]
    return f"{value:.4g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 step, 2 steps."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
