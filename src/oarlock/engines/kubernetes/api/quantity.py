"""Kubernetes' quantities: `100m`, `2Gi`, `1e3`. Exact, so that what fits by a byte fits. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

_BINARY = {
    unit: Decimal(1024) ** power for power, unit in zip(range(6, 0, -1), ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"))
}


def parse(written: Any) -> Decimal:
    """Read a quantity; raises ValueError."""
    try:
        return parse_quantity(str(written)) or Decimal(0)
    except ValueError:
        raise ValueError(f"not a quantity: {written}") from None


def text(amount: Decimal, resource: str) -> str:
    """The quantity as people read it: sizes in the largest unit that fits, counts as they are."""
    if is_size(resource):
        for unit, scale in _BINARY.items():
            if abs(amount) >= scale:
                return _plain(round(amount / scale, 2)) + unit
    return _plain(amount)


def is_size(resource: str) -> bool:
    """Whether a resource is counted in bytes."""
    return resource.endswith(("memory", "storage"))


def _plain(amount: Decimal) -> str:
    digits = f"{amount:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
