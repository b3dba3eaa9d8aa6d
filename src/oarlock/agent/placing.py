"""Which task runs on which agent, and where it is reached. Pure.

An agent offers slots for roles and a port for each. Tasks are given out in the agents' order, so the
leader is on the leading agent, and a machine's tasks have neighbouring ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oarlock.cluster import ROLES, Task, form

Message = dict[str, Any]


@dataclass
class Agent:
    """One agent as the conductor knows it."""

    name: str
    uid: str
    born: float
    host: str
    wish: Callable[[Message], None]
    is_connected: bool = True
    status: Message = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.is_connected and bool(self.status.get("ready"))

    @property
    def order(self) -> tuple[str, int]:
        """`worker-10` after `worker-9`, the chief first."""
        matched = re.fullmatch(r"(.*?)-?(\d+)", self.name)
        role, index = (matched[1], int(matched[2])) if matched else (self.name, 0)
        return (str(ROLES.index(role)) if role in ROLES else role, index)


class Placement(NamedTuple):
    tasks: tuple[Task, ...]
    places: dict[str, list[str]]  # agent -> tasks
    addresses: dict[str, str]  # task -> host:port

    def size(self, role: str) -> int:
        return sum(task.role == role for task in self.tasks)


def slots(agents: Iterable[Agent]) -> int:
    """How many tasks of any role there is room for: cheap, for a thousand arrivals in a row."""
    return sum(sum(agent.status["slots"].values()) for agent in agents if agent.is_ready)


def place(agents: Iterable[Agent], want: Mapping[str, int]) -> Placement:
    """As many of the wanted tasks as the agents that are ready have room for."""
    ready = sorted((agent for agent in agents if agent.is_ready), key=lambda agent: agent.order)
    seats = {role: _seats(ready, role)[:count] for role, count in want.items()}
    placement = Placement(form({role: len(found) for role, found in seats.items()}), {}, {})
    placement.places.update({agent.name: [] for agent in ready})
    for task in placement.tasks:
        agent = seats[task.role][task.index]
        here = placement.places[agent.name]
        placement.addresses[task.name] = f"{agent.host}:{agent.status['ports'][len(here)]}"
        here.append(task.name)
    return placement


def _seats(agents: Iterable[Agent], role: str) -> list[Agent]:
    return [agent for agent in agents for _ in range(agent.status["slots"].get(role, 0))]
