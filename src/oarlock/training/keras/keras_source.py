"""How a correction says what it changes, and how it sees whether the installed Keras has the fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Change = tuple[Any, str, Callable[..., Any]]  # the owner, the attribute, and what it becomes


def has_in_source(function: Any, fault: str) -> bool:
    """Whether the source of a function of Keras contains that text."""
    return fault in inspect.getsource(function)
