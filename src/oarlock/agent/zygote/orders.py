"""What agent and zygote send each other: the agent's orders and the zygote's replies. Pure.

Descriptors travel with a `Launch`: the task's output, its line to the agent, and its input if it has one.
"""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any, TypeVar, Union

from oarlock.agent.protocol.spec import Program
from oarlock.run.message_kinds import MessageKinds
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import build

T = TypeVar("T")


def _listed(kind: type[T], data: dict[str, Any], field: str) -> tuple[T, ...]:
    found = data.get(field)
    if not isinstance(found, list):
        raise ValueError(f"{field} that are no list")
    return tuple(build(kind, each) for each in found)


# Orders


@dataclass(frozen=True)
class Prepare:
    """The first order: import the modules, in this folder and this network. Where the zygote's stdout and
    stderr go travels with it: it may have started before there was a place for them."""

    cwd: str
    env: dict[str, str]  # what this run adds to the environment in which the zygote started
    modules: tuple[str, ...]
    warm: bool  # False: import nothing, and spawn tasks instead of forking them
    network: str  # shared or private


@dataclass(frozen=True)
class Launch:
    """Start one task. `env` is added to the zygote's own environment."""

    task: str
    parent: int  # the zygote's pid, by which the task notices that its parent has died
    cwd: str
    program: Program
    seed: int | None
    identity: str  # gives this process random numbers of its own
    env: dict[str, str]
    has_input: bool = False  # the third descriptor is its standard input; otherwise its input is empty

    def to_data(self) -> dict[str, Any]:
        """Return the fields as JSON data, for `ORDERS`."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Launch:
        """Read the fields, and the program within them. Raises ValueError."""
        return build(cls, data, program=build(Program, data.get("program")))


@dataclass(frozen=True)
class Signal:
    """Send a signal to the process groups of tasks."""

    number: int
    pids: tuple[int, ...]
    ours: bool  # the agent wants these tasks to end: that is no failure, however they end


@dataclass(frozen=True)
class Import:
    """Import these as well, in the background: a task needed them, so the next one will, too."""

    modules: tuple[str, ...]


@dataclass(frozen=True)
class StandBy:
    """A task uses these GPUs: fork a process that starts their driver and becomes the next launch.

    That must have the same program, and variables that matter for GPUs. Without GPUs, there is none.
    """

    task: str
    program: str
    gpus: tuple[int, ...]  # by the numbers under which the task sees them
    env: dict[str, str]


@dataclass(frozen=True)
class OpenGpus:
    """The task is dying, or its GPUs have room for more (`early`): let the process that stands by for it open
    them."""

    task: str
    early: bool


@dataclass(frozen=True)
class Sweep:
    """Kill everything that ended tasks have left behind. Wait until it is gone, except for writers."""


@dataclass(frozen=True)
class Stay:
    """The run is over: keep the imports for the next run, that many seconds, behind that socket."""

    socket_path: str
    seconds: float


Order = Union[Prepare, Launch, Signal, Import, StandBy, OpenGpus, Sweep, Stay]
ORDERS: MessageKinds[Order] = MessageKinds(
    {
        "prepare": Prepare,
        "launch": Launch,
        "signal": Signal,
        "import": Import,
        "stand_by": StandBy,
        "open_gpus": OpenGpus,
        "sweep": Sweep,
        "stay": Stay,
    }
)

# Replies


@dataclass(frozen=True)
class Ready:
    """All imports are done. `why`: why tasks are spawned and not forked."""

    warm: bool
    why: str | None = None
    modules: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # modules that failed to import, with their errors
    seconds: float = 0.0  # the time that the imports took; 0 if an earlier run had done them


@dataclass(frozen=True)
class Launched:
    """The task has a process."""

    task: str
    pid: int


@dataclass(frozen=True)
class NotLaunched:
    """The system refused another process."""

    task: str
    errno: int


@dataclass(frozen=True)
class Signaled:
    """The answer to Signal. It shows the agent that the zygote still obeys."""


@dataclass(frozen=True)
class Exit:
    """How one task ended."""

    pid: int
    status: int  # as returned by `waitpid`
    ours: bool  # it got a Signal with `ours`


@dataclass(frozen=True)
class Exited:
    """All tasks that have ended since the last such reply. The order among them means nothing."""

    exits: tuple[Exit, ...]

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Exited:
        """Read the list of exits. Raises ValueError."""
        return cls(_listed(Exit, data, "exits"))


@dataclass(frozen=True)
class MachineUnfit:
    """This machine cannot do what the run requires; the zygote ends."""

    text: str


@dataclass(frozen=True)
class Swept:
    """No process of the tasks is left."""


@dataclass(frozen=True)
class Staying:
    """The answer to Stay. False: the zygote ends instead."""

    stays: bool


Reply = Union[Ready, Launched, NotLaunched, Signaled, Exited, MachineUnfit, Swept, Staying]
REPLIES: MessageKinds[Reply] = MessageKinds(
    {
        "ready": Ready,
        "launched": Launched,
        "not_launched": NotLaunched,
        "signaled": Signaled,
        "exited": Exited,
        "refused": MachineUnfit,
        "swept": Swept,
        "staying": Staying,
    }
)


# Between an agent and a zygote that has stayed after its run


@dataclass(frozen=True)
class ForkRequest:
    """The agent of a later run asks for a zygote of its own. A socket, stdout and stderr travel with it."""

    cwd: str
    env: dict[str, str]
    network: str


@dataclass(frozen=True)
class Forked:
    """The answer to ForkRequest: the zygote of that run."""

    pid: int


@dataclass(frozen=True)
class StandByNext:
    """A run has ended that used these GPUs: the next one may find them open."""

    standbys: tuple[StandBy, ...]

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> StandByNext:
        """Read the list of orders. Raises ValueError."""
        return cls(_listed(StandBy, data, "standbys"))


KEEPER_MESSAGES: MessageKinds[ForkRequest | Forked | StandByNext] = MessageKinds(
    {"fork": ForkRequest, "forked": Forked, "stand_by_next": StandByNext}
)
