"""Messages between our own processes on one machine: frozen dataclasses, distinguished by `kind`. Pure.

Each pair of processes has one set of them, in one module: agent and zygote, agent and uploader, program and
writer. Reading checks every field, so that a receiver gets values of the declared types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from oarlock.run.typed import build

T = TypeVar("T")


class MessageKinds(Generic[T]):
    """A closed set of message classes. Those that are not plain JSON have `to_data` and `from_data`."""

    def __init__(self, classes: Mapping[str, type[Any]]) -> None:
        self._classes = dict(classes)
        self._names = {kind: name for name, kind in self._classes.items()}

    def to_data(self, message: T) -> dict[str, Any]:
        """Turn a message into JSON data."""
        own = getattr(message, "to_data", None)
        fields = asdict(message) if own is None else own()  # type: ignore[call-overload]
        return {"kind": self._names[type(message)], **fields}

    def from_data(self, data: Any) -> T:
        """Read the message in a JSON object. Raises ValueError if it is not one of this set."""
        if not isinstance(data, dict) or data.get("kind") not in self._classes:
            raise ValueError(f"not a message: {str(data)[:80]!r}")
        kind = self._classes[data["kind"]]
        own = getattr(kind, "from_data", None)
        message: T = build(kind, data) if own is None else own(data)
        return message
