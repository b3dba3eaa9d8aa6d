"""Kubernetes' quantities: `100m`, `2Gi`, `1e3`. Exact, so that what fits by a byte fits. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_UNITS = {
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1000) ** -power for power, unit in enumerate(("m", "u", "n"), 1)},
}
_WRITTEN = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]{0,2})")
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def parse(written: Any) -> Decimal:
    matched = _WRITTEN.fullmatch(str(written))
    if matched is None or matched[2] not in _UNITS:
        raise ValueError(f"not a quantity: {written}")
    return Decimal(matched[1]) * _UNITS[matched[2]]


def told(amount: Decimal, resource: str) -> str:
    """As people read it: sizes in the largest unit that leaves three digits, counts as they are."""
    if is_size(resource):
        for unit in _BINARY:
            if abs(amount) >= _UNITS[unit]:
                return _plain(round(amount / _UNITS[unit], 2)) + unit
    return _plain(amount)


def is_size(resource: str) -> bool:
    return resource.endswith(("memory", "storage"))


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
