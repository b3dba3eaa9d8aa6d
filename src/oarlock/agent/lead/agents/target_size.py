"""How many tasks of each role a run should have, and how few are enough to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from oarlock.agent.lead.agents.placement import Agent, Placement, place, slots
from oarlock.agent.protocol.spec import Spec
from oarlock.run.cluster import form


class TargetSize:
    """The sizes in the job file, or those that the run was scaled to since then."""

    def __init__(self, spec: Spec, workers: int | None = None) -> None:
        """`workers`: the number that the run was last scaled to, if it was."""
        self.spec = spec
        self.sizes = dict(spec.sizes)
        if workers is not None:
            self.set_workers(workers)

    def set_workers(self, workers: int) -> bool:
        """Set the number of workers. Returns whether it changes."""
        before = self.sizes
        self.sizes = {**before, "worker": self.spec.tasks_of("worker", workers)}
        return self.sizes != before

    @property
    def total(self) -> int:
        """The number of tasks of all roles."""
        return sum(self.sizes.values())

    @property
    def machines(self) -> int:
        """How many machines the run has if every member has its own."""
        return sum(self.spec.members_of(role, count) for role, count in self.sizes.items())

    def has_room(self, agents: Iterable[Agent]) -> bool:
        """Whether there may be room for a gang that is large enough. Cheaper than `place`."""
        return slots(agents) >= sum(map(self._least, self.sizes))

    def place(self, agents: Iterable[Agent]) -> Placement:
        """Place as many of these tasks as the ready agents have slots for."""
        return place(agents, self.sizes)

    def is_complete(self, placement: Placement) -> bool:
        """Whether every task has a slot."""
        return len(placement.tasks) == self.total

    def suffices(self, placement: Placement) -> bool:
        """Whether enough tasks of each role have a slot for the gang to run."""
        return all(placement.size(role) >= self._least(role) for role in self.sizes)

    def could_grow(self, running: int, agents: Iterable[Agent]) -> bool:
        """Whether a gang of more than `running` tasks could form now."""
        if running >= self.total:
            return False
        placement = self.place(agents)
        return len(placement.tasks) > running and self.suffices(placement)

    def missing(self, agents: Iterable[Agent]) -> str:
        """The tasks that the agents have no slots for; the first five by name."""
        placed = {task.name for task in self.place(agents).tasks}
        missing = [task.name for task in form(self.sizes) if task.name not in placed]
        return ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")

    def _least(self, role: str) -> int:
        """The fewest tasks of this role. A gang of a fixed size needs all, even after it was scaled."""
        size = self.sizes[role]
        return min(size, self.spec.least[role]) if self.spec.is_elastic(role) else size
