"""A TensorFlow variable in shards on several parameter servers, saved and restored as one variable.

Shards are cut along the first axis, usually one per server. A checkpoint holds the whole variable, so that
it fits any number of servers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_NAME = re.compile(r"(.*)/part_(\d+)(?::0)?")


class ListedShards:
    """Shards that a tf_keras model lists one by one, presented as the variable that they form."""

    def __init__(self, name: str, first: Any) -> None:
        self.name = name
        self.variables = [first]

    @property
    def dtype(self) -> Any:
        """The dtype of every shard."""
        return self.variables[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole variable."""
        return whole_shape(self.variables)

    def assign(self, array: Any) -> None:
        """Give each shard its rows."""
        begin = 0
        for variable in self.variables:
            end = begin + int(variable.shape[0])
            variable.assign(array[begin:end])
            begin = end


def whole_shape(shards: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the variable that these shards form."""
    first = shards[0].shape
    return (sum(int(shard.shape[0]) for shard in shards), *(int(size) for size in first[1:]))


def shards_of(value: Any) -> Sequence[Any] | None:
    """The shards of a variable; None if it is in one piece."""
    if isinstance(value, ListedShards) or type(value).__name__ == "ShardedVariable":
        found: Sequence[Any] = value.variables
        return found
    return None


def joined(variables: Sequence[Any]) -> list[Any]:
    """The variables, with the shards of each combined at the position of its first shard."""
    found: list[Any] = []
    open_: dict[str, ListedShards] = {}
    for variable in variables:
        match = _NAME.fullmatch(str(getattr(variable, "name", "")))
        if match is None or not tuple(variable.shape):
            found.append(variable)
            continue
        name, number = match[1], int(match[2])
        if number and name in open_ and len(open_[name].variables) == number:
            open_[name].variables.append(variable)
        else:
            open_[name] = ListedShards(name, variable)
            found.append(open_[name])
    return found
