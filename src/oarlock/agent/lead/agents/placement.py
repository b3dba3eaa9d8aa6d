"""Which task runs on which agent, and at which address. Pure.

An agent offers slots for roles, and one port per slot. Tasks are placed in the order of the agents, so the
leader task is on the leading agent, and the tasks of a machine have adjacent ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.wishes import Order, Wish
from oarlock.run.cluster import ROLES, Task, form
from oarlock.run.contract import Gang


@dataclass
class Agent:
    """One agent as the conductor knows it."""

    name: str
    uid: str
    machine: str  # stays the same when the agent restarts on its machine
    host: str
    send: Callable[[Wish | Order], None]
    is_connected: bool = True
    is_leading: bool = False  # the leading agent's own host: no other agent replaces it
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it is connected and has reported that it can run tasks."""
        return self.is_connected and self.status is not None and self.status.ready

    @property
    def order(self) -> tuple[str, int]:
        """A sort key: the chief first, and `worker-10` after `worker-9`."""
        matched = re.fullmatch(r"(.*?)-?(\d+)", self.name)
        role, index = (matched[1], int(matched[2])) if matched else (self.name, 0)
        return (str(ROLES.index(role)) if role in ROLES else role, index)


class Placement(NamedTuple):
    """The tasks that have a slot, with their ranks, and the agent and address of each."""

    tasks: tuple[Task, ...]
    places: dict[str, list[str]]  # agent -> tasks
    addresses: dict[str, str]  # task -> host:port

    def size(self, role: str) -> int:
        """How many tasks of this role have a slot."""
        return sum(task.role == role for task in self.tasks)

    def gang(self, spec: Spec, generation: int, restarts: int, checkpoints: list[str], files: str) -> Gang:
        """The generation that these tasks form, as each of them sees it."""
        return Gang(
            run=spec.run,
            generation=generation,
            tasks=self.tasks,
            addresses=self.addresses,
            restarts=restarts,
            max_restarts=spec.limits.restarts,
            seed=spec.seed,
            machines=[names for names in self.places.values() if names],
            checkpoints=checkpoints,
            files=files,
        )


def slots(agents: Iterable[Agent]) -> int:
    """How many slots the agents have, for any role: cheap, even for a thousand arrivals in a row."""
    return sum(sum(agent.status.slots.values()) for agent in agents if agent.status and agent.is_ready)


def place(agents: Iterable[Agent], want: Mapping[str, int]) -> Placement:
    """Place as many of the wanted tasks as the ready agents have slots for."""
    ready = sorted((agent for agent in agents if agent.is_ready), key=lambda agent: agent.order)
    seats = {role: _seats(ready, role)[:count] for role, count in want.items()}
    placement = Placement(form({role: len(found) for role, found in seats.items()}), {}, {})
    placement.places.update({agent.name: [] for agent in ready})
    for task in placement.tasks:
        agent = seats[task.role][task.index]
        here = placement.places[agent.name]
        placement.addresses[task.name] = f"{agent.host}:{_status(agent).ports[len(here)]}"
        here.append(task.name)
    return placement


def _seats(agents: Iterable[Agent], role: str) -> list[Agent]:
    return [agent for agent in agents for _ in range(_status(agent).slots.get(role, 0))]


def _status(agent: Agent) -> Status:
    assert agent.status is not None, "it is ready, so it has said so"
    return agent.status
