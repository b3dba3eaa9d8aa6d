"""From a job's roles to its tasks and their ranks. Pure; travels into pods.

A *trainer* is a chief or a worker. Trainers have ranks: the chief first, then the workers in order. Parameter
servers and evaluators have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oarlock.run.quick_dataclass import dataclass

ROLES = ("chief", "worker", "ps", "evaluator")
TRAINERS = ("chief", "worker")
INGEST = "ingest"  # not a role of the gang: it runs before the gang


@dataclass(frozen=True)
class Task:
    """One member of a role, and its rank among the trainers."""

    role: str
    index: int
    rank: int | None = None

    @property
    def name(self) -> str:
        """Its name: `worker-3`."""
        return f"{self.role}-{self.index}"

    @property
    def is_trainer(self) -> bool:
        """Whether it has a rank: chiefs and workers do."""
        return self.role in TRAINERS

    @property
    def is_leader(self) -> bool:
        """Whether it is the chief, or worker-0 without one: it saves, and the run ends with it."""
        return self.rank == 0


def form(sizes: Mapping[str, int]) -> tuple[Task, ...]:
    """All tasks of a gang, trainers first in rank order. `sizes`: the number of tasks per role."""
    trainers = [(role, index) for role in TRAINERS for index in range(sizes.get(role, 0))]
    others = [(role, index) for role in ("ps", "evaluator") for index in range(sizes.get(role, 0))]
    return (
        *(Task(role, index, rank) for rank, (role, index) in enumerate(trainers)),
        *(Task(role, index) for role, index in others),
    )


def ingest_name(agent: str, leads: bool, where: str) -> str:
    """The name of the task that prepares data on an agent's machine: one for all, or one on each."""
    return f"{INGEST}-0" if leads and where == "leader" else f"{INGEST}-{agent}"


def is_ingest(task: str) -> bool:
    """Whether a task of that name prepares data, and is not part of the gang."""
    return task.startswith(f"{INGEST}-")


def leader(tasks: Iterable[Task]) -> Task:
    """Return the chief, or worker-0."""
    return next(task for task in tasks if task.is_leader)


def world(tasks: Iterable[Task]) -> int:
    """Return the number of tasks that have a rank."""
    return sum(task.is_trainer for task in tasks)


def in_step(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks that save, or stop, before the same step.

    In a collective these are all trainers. With parameter servers it is only the leader: the others only
    serve it, or train at their own pace, and the state is on the servers.
    """
    gang = tuple(tasks)
    has_servers = any(task.role == "ps" for task in gang)
    return tuple(task for task in gang if task.is_leader or (task.is_trainer and not has_servers))


def restarts_with(lost: Task, tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks that have to restart when `lost` is gone.

    A collective's members restart together. An evaluator only reads checkpoints, so it restarts alone. With
    parameter servers the variables live there: a worker or a chief restarts alone and finds them (measured:
    re-joined in 0.9 s, the others never noticed), but a lost server takes its variables with it.
    """
    gang = tuple(tasks)
    has_servers = any(task.role == "ps" for task in gang)
    if lost.role == "evaluator" or (has_servers and lost.is_trainer):
        return (lost,)
    return tuple(task for task in gang if task.role != "evaluator")
