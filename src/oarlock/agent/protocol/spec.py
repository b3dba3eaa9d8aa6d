"""What an agent is told: the job, resolved for one machine. Written by the client, read once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from oarlock.run.typed import VERSION, build, check_version

_MOST_WORKERS = 64  # of a run whose job gives a fixed number: more is a slip of the finger


@dataclass(frozen=True)
class Limits:
    """Seconds; None is no limit."""

    restarts: int = 3
    stall: float | None = 600.0
    runtime: float | None = None
    rendezvous: float = 300.0
    grace: float = 30.0
    logs: int | None = 1 << 30  # bytes of each task


@dataclass(frozen=True)
class Program:
    """What every task runs."""

    kind: str  # program, module or command
    target: Any  # a path, a module's name, or a list of words
    args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Seat:
    """One agent's place in the run: its name, and how many tasks of each role it has room for."""

    name: str
    slots: dict[str, int]


@dataclass(frozen=True)
class Spec:
    """The content of `agent.json`, the same for all agents of the run."""

    run: str
    folder: str  # the run's record
    cwd: str  # where tasks start
    program: Program
    sizes: dict[str, int]  # tasks per role
    folders: dict[str, str]  # data, checkpoints, model, logs, as the leader sees them
    limits: Limits = field(default_factory=Limits)
    env: dict[str, str] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)  # per role, where the gang may shrink
    processes: dict[str, int] = field(default_factory=dict)  # tasks of one member, per role; 1 if not given
    machines: int = 1  # agents
    brings_crew: bool = True  # the leading agent starts the others itself, on this machine
    bind: str = "127.0.0.1"
    port: int = 0  # the coordinator's; 0 is any
    modules: list[str] = field(default_factory=list)  # for the zygote to import
    warm: bool = True
    keep: float = 0.0  # seconds for which what was imported stays for the next run
    network: str = "shared"  # or private: the tasks have a loopback of their own and reach nothing else
    observe: bool = True  # hooks report the progress of a program that does not
    seed: int | None = None  # None: random numbers come from the kernel
    job: str = ""
    id: str = ""  # tells it from an earlier run of the same name, whose folder may still be there
    resumed: int = 0  # how often it was gone on with after it had ended
    pip: list[str] = field(default_factory=list)  # for a pod to install before the start
    secret: str = ""  # the file that holds the run's token, if it is not in the folder
    snapshots: str = ""  # where complete checkpoints and the model are copied to: a URL, or a folder
    is_new: bool = False  # its name was made up when it started: nobody has snapshots of it
    cache: str = ""  # a folder for compiled code that outlives the run; if empty, the run's own has it
    claim: str = ""  # who mounts the volume that outlives pods: leader, shared (everybody), or nobody
    is_replaced: bool = False  # an agent that has to leave is started again elsewhere: that ends no run

    @property
    def token(self) -> str:
        """The file that holds the run's token."""
        return self.secret or f"{self.folder}/token"

    def seat(self, machine: int) -> Seat:
        """The seat of a machine that shares the run's workers with others; 0 is the leading agent's."""
        return Seat(self.name_of(machine), self.slots_of(machine))

    def seat_of(self, role: str, index: int) -> Seat:
        """Where every member has a machine of its own."""
        return Seat(f"{role}-{index}", {role: self.processes_of(role)})

    def name_of(self, machine: int) -> str:
        """The name of the agent on that machine."""
        return f"machine-{machine}"

    def slots_of(self, machine: int) -> dict[str, int]:
        """Workers are shared out evenly; everybody else is on the first machine."""
        workers = self.sizes.get("worker", 0)
        share = workers // self.machines + (machine < workers % self.machines)
        others = {role: count for role, count in self.sizes.items() if role != "worker"}
        return {**(others if machine == 0 else {}), "worker": share}

    @property
    def is_alone(self) -> bool:
        """The only agent there will ever be: it has room for everybody."""
        return self.machines == 1 and self.brings_crew

    def is_elastic(self, role: str) -> bool:
        """Whether the gang may run with fewer tasks of this role than `sizes` says."""
        return self.least.get(role, self.sizes[role]) < self.sizes[role]

    def processes_of(self, role: str) -> int:
        """How many tasks each member of this role consists of; they share a machine."""
        return self.processes.get(role, 1)

    def refuses_workers(self, workers: int) -> str | None:
        """Why a live run cannot have that many workers, or None."""
        if "worker" not in self.sizes:
            return "its job has no workers"
        each = self.processes_of("worker")
        size = self.sizes["worker"] // each
        least, most, why = 1, max(_MOST_WORKERS, size), ""
        if self.is_elastic("worker"):
            least, most, why = self.least["worker"] // each, size, ", as its job says"
        elif self.machines > 1 and self.brings_crew:
            most, why = size, f": its {self.machines} machines have room for no more"
        return None if least <= workers <= most else f"it can have {least} to {most} workers{why}"

    def to_json(self) -> str:
        """Return the content of `agent.json`, with a version for `from_json` to check."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Raises ValueError: LaterVersion for one that a later Oarlock wrote."""
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        check_version(data)
        program = build(Program, data.get("program"))
        return build(cls, data, program=program, limits=build(Limits, data.get("limits", {})))
