"""How much of a long test runs: a representative part in `make test`, all of it in `make soak`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
_ASKED = os.environ.get("OARLOCK_MOMENTS")
IS_SOAK = bool(_ASKED)


only_in_soak = pytest.mark.soak  # long, and others cover most of it: `conftest` deselects these elsewhere


def moments(ordinary: int) -> int:
    """How often to repeat."""
    return int(_ASKED) if _ASKED else ordinary


def cases(ordinary: Sequence[T], soak: Sequence[T]) -> list[T]:
    """Parameters of a test; those of `soak` differ too little from the others to be tried every time."""
    return [*ordinary, *soak] if _ASKED else [*ordinary]
