"""How a correction describes its change, and how it checks whether the installed Keras has the fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Change = tuple[Any, str, Callable[..., Any]]  # the owner, the attribute, and its new value


def has_in_source(function: Any, fault: str) -> bool:
    """Whether the source of a Keras function contains that text."""
    return fault in inspect.getsource(function)
