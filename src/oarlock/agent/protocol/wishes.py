"""What the leading agent wants from a host. Pure.

A *wish* is a goal, not the next thing to do: every new connection repeats it, it may arrive twice or late,
and the host compares it with what exists.

    run     the tasks placed here run, in this generation; those with a higher launch number restart
    halt    the trainers get the step at which to leave from their gates, and leave by themselves
    clear   no task of this generation runs; all descendants of the zygote are killed
    finish  the leader task is done: servers are stopped, the others have the grace to end by themselves
    stop    every task is asked to end: SIGTERM, grace, SIGKILL
    over    the run has ended: leave

An *order* is carried out once, when it arrives, and never again:

    stacks                  every task writes its Python stacks to its log
    where, meet, carry-on   what the leading agent sends to all gates, through the hosts
    fault                   what a user does to a task on purpose
    made                    the leader task has made these folders, which others wait for
    part                    end this machine's tasks: it was asked to leave, and the gang cannot halt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Union, cast

from oarlock.agent.protocol import checked_fields as checked
from oarlock.agent.protocol.gates import GATE_MESSAGES, GateMessage, gate_message
from oarlock.agent.protocol.wire import Message, WireError
from oarlock.run.cluster import ROLES, Task
from oarlock.run.contract import Gang
from oarlock.run.quick_dataclass import dataclass

FaultKind = Literal["kill", "pause", "continue"]
FAULT_KINDS = ("kill", "pause", "continue")
_MOST_TASKS = 1_000_000  # per run; a frame has its own limit


@dataclass(frozen=True)
class RunTasks:
    """The gang runs: each host starts the tasks placed on it."""

    gang: Gang
    places: Mapping[str, list[str]]  # agent -> its tasks
    launches: Mapping[str, int] = field(default_factory=dict)  # of tasks that restarted alone
    is_done: bool = False  # the leader task is done: the evaluator scores what is left, all others end

    @property
    def generation(self) -> int:
        """The gang's generation, under the name that all wishes share."""
        return self.gang.generation

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "do": "run",
            "generation": self.generation,
            "run": self.gang.run,
            "tasks": [(task.role, task.index, task.rank) for task in self.gang.tasks],
            "places": self.places,
            "addresses": self.gang.addresses,
            "launches": self.launches,
            "restarts": self.gang.restarts,
            "max_restarts": self.gang.max_restarts,
            "seed": self.gang.seed,
            "checkpoints": self.gang.checkpoints,
            "scored": self.gang.scored,
            "files": self.gang.files,
            "done": self.is_done,
        }


@dataclass(frozen=True)
class Halt:
    """The trainers save and leave before the step that their gates agree on."""

    generation: int
    want: Mapping[str, int] | None = None  # tasks per role, for which the run's only machine makes room

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {"do": "halt", "generation": self.generation, **_unless_none(want=self.want)}


@dataclass(frozen=True)
class Clear:
    """No task of this generation is left: each host kills its tasks and what they started."""

    generation: int
    stacks: bool = False  # the tasks dump their stacks first
    want: Mapping[str, int] | None = None

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "do": "clear",
            "generation": self.generation,
            "stacks": self.stacks,
            **_unless_none(want=self.want),
        }


@dataclass(frozen=True)
class Finish:
    """The leader task has ended with 0: servers stop, the others have the grace to end by themselves."""

    generation: int

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {"do": "finish", "generation": self.generation}


@dataclass(frozen=True)
class Stop:
    """Every task ends: SIGTERM, the grace, SIGKILL."""

    generation: int
    grace: float | None = None  # None: the job's grace
    now: bool = False  # SIGKILL

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "do": "stop",
            "generation": self.generation,
            "now": self.now,
            **_unless_none(grace=self.grace),
        }


@dataclass(frozen=True)
class Over:
    """The run has ended: each agent leaves, with this exit code."""

    generation: int
    code: int
    replaced: bool = False  # the run continues, but another machine has replaced this one

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "do": "over",
            "generation": self.generation,
            "code": self.code,
            **({"replaced": True} if self.replaced else {}),
        }


@dataclass(frozen=True)
class ShowStacks:
    """Every task shows its Python stacks in its log."""

    generation: int

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {"do": "stacks", "generation": self.generation}


@dataclass(frozen=True)
class ToGates:
    """Pass a message on to every trainer's gate."""

    generation: int
    message: GateMessage

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {**self.message.to_data(), "generation": self.generation}


@dataclass(frozen=True)
class Fault:
    """Do this to one task, because a user asked for it (`oarlock chaos`)."""

    generation: int
    fault: FaultKind
    task: str
    seconds: float = 0.0  # how long a pause lasts

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {
            "do": "fault",
            "generation": self.generation,
            "fault": self.fault,
            "task": self.task,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Made:
    """Notify the tasks that wait for these folders. Lists all so far, as an earlier order may be lost."""

    generation: int
    folders: frozenset[str]

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {"do": "made", "generation": self.generation, "folders": sorted(self.folders)}


@dataclass(frozen=True)
class Part:
    """End this machine's tasks: it was asked to leave, and the gang cannot halt."""

    generation: int

    def to_data(self) -> Message:
        """Return it as JSON data, for `from_data`."""
        return {"do": "part", "generation": self.generation}


Wish = Union[RunTasks, Halt, Clear, Finish, Stop, Over]
Order = Union[ShowStacks, ToGates, Fault, Made, Part]


def from_data(data: Any) -> Wish | Order:
    """Read what the leading agent sent. Raises WireError."""
    message = checked.json_object(data, "wish")
    do, generation = checked.text(message, "do"), checked.whole(message, "generation")
    if do == "run":
        return _run(message, generation)
    if do == "halt":
        return Halt(generation, _want(message))
    if do == "clear":
        return Clear(generation, _flag(message, "stacks"), _want(message))
    if do == "finish":
        return Finish(generation)
    if do == "stop":
        grace = checked.optional(message, "grace", checked.number)
        return Stop(generation, grace, _flag(message, "now"))
    if do == "over":
        return Over(generation, checked.exit_code(message, "code"), _flag(message, "replaced"))
    if do == "stacks":
        return ShowStacks(generation)
    if do in GATE_MESSAGES:
        return ToGates(generation, gate_message(message))
    if do == "fault":
        return _fault(message, generation)
    if do == "made":
        return Made(generation, checked.folders(message.get("folders")))
    if do == "part":
        return Part(generation)
    raise WireError("not a valid wish")


def _run(message: Message, generation: int) -> RunTasks:
    addresses = checked.json_object(message.get("addresses"), "addresses", _MOST_TASKS)
    if not all(isinstance(address, str) for address in addresses.values()):
        raise WireError("not valid addresses")
    places = checked.json_object(message.get("places"), "places", _MOST_TASKS)
    placed = {checked.name_of(name): checked.names(tasks, "places") for name, tasks in places.items()}
    gang = Gang(
        run=checked.text(message, "run"),
        generation=generation,
        tasks=tuple(map(_task, checked.json_list(message.get("tasks"), "tasks", _MOST_TASKS))),
        addresses={checked.name_of(name): address for name, address in addresses.items()},
        restarts=checked.whole(message, "restarts"),
        max_restarts=checked.whole(message, "max_restarts"),
        seed=checked.optional(message, "seed", checked.integer),
        machines=[tasks for tasks in placed.values() if tasks],
        checkpoints=checked.names(message.get("checkpoints", []), "checkpoints"),
        scored=checked.names(message.get("scored", []), "scored"),
        files=checked.text(message, "files") if message.get("files") else "",
    )
    launches = checked.counts(message.get("launches"), "launches")
    return RunTasks(gang, placed, launches, _flag(message, "done"))


def _task(data: Any) -> Task:
    role, index, rank = data if isinstance(data, list) and len(data) == 3 else (None, None, None)
    if role not in ROLES or type(index) is not int or not (rank is None or type(rank) is int):
        raise WireError("not a valid task")
    return Task(role, index, rank)


def _fault(message: Message, generation: int) -> Fault:
    fault = checked.text(message, "fault")
    if fault not in FAULT_KINDS:
        raise WireError("not a valid fault")
    task, seconds = checked.text(message, "task"), checked.number(message, "seconds")
    return Fault(generation, cast(FaultKind, fault), task, seconds)


def _want(message: Message) -> dict[str, int] | None:
    return checked.counts(message["want"], "want") if message.get("want") is not None else None


def _flag(message: Message, name: str) -> bool:
    return checked.flag(message, name) if name in message else False


def _unless_none(**fields: Any) -> Message:
    return {name: value for name, value in fields.items() if value is not None}
