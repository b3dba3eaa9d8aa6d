"""Kubernetes' quantities: `100m`, `2Gi`, `1e3`. Exact, so that what fits by a byte fits. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity


def parse(written: Any) -> Decimal:
    """Read a quantity; raises ValueError."""
    try:
        return parse_quantity(str(written)) or Decimal(0)
    except ValueError:
        raise ValueError(f"not a quantity: {written}") from None
