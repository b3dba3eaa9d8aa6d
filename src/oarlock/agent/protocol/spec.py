"""What an agent runs: the job, resolved for one machine. Written by the client, read once."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any

from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.run.quick_dataclass import dataclass
from oarlock.run.typed import VERSION, build, check_version

_MOST_WORKERS = 64  # for a run whose job gives a fixed number: more is probably a typo


@dataclass(frozen=True)
class LimitsSpec:
    """Limits in seconds. None means no limit."""

    restarts: int = 3
    stall: float | None = 600.0
    runtime: float | None = None
    rendezvous: float = 300.0
    grace: float = 30.0
    evaluate: float = 600.0  # for the evaluator, after the leader task is done
    logs: int | None = 1 << 30  # bytes per task


@dataclass(frozen=True)
class Program:
    """What every task runs."""

    kind: str  # program, module or command
    target: Any  # a path, a module's name, or a list of words
    args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StageSpec:
    """A role that runs something different from the others."""

    program: Program
    env: dict[str, str] = field(default_factory=dict)  # in addition to the run's
    pip: list[str] = field(default_factory=list)  # what its pod installs in addition to the run's packages


@dataclass(frozen=True)
class IngestSpec:
    """What prepares the data before training."""

    key: str  # a digest of all fields below; `folders["data"]` ends in it
    program: Program | None = None  # None: the sources are the data
    env: dict[str, str] = field(default_factory=dict)
    pip: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # name -> path or URL
    checksums: dict[str, str] = field(default_factory=dict)  # name -> SHA-256
    where: str = "leader"  # or each: on every machine, if they do not share a folder
    when: str = "once"  # or always: even if an earlier run has done it; or never
    alone: bool = False  # the run is over once the data is there


@dataclass(frozen=True)
class Seat:
    """One agent's place in the run: its name, and how many tasks of each role it can host."""

    name: str
    slots: dict[str, int]


@dataclass(frozen=True)
class Spec:
    """The content of `agent.json`, the same for all agents of the run."""

    run: str
    folder: str  # of the run's record
    cwd: str  # the folder in which tasks start
    program: Program
    sizes: dict[str, int]  # tasks per role
    folders: dict[str, str]  # data, checkpoints, model, logs, as the leader sees them
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    env: dict[str, str] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)  # per role, if the gang may shrink
    processes: dict[str, int] = field(default_factory=dict)  # tasks per member of a role; 1 if missing
    members: dict[str, list[int]] = field(default_factory=dict)  # the same for each member, if they differ
    gpus: Gpus = field(default_factory=Gpus)
    machines: int = 1  # the number of agents
    brings_crew: bool = True  # the leading agent starts the others itself, on this machine
    bind: str = "127.0.0.1"
    port: int = 0  # the coordinator's; 0 means any
    modules: list[str] = field(default_factory=list)  # for the zygote to import
    warm: bool = True
    keep: float = 0.0  # seconds for which imports stay for the next run
    network: str = "shared"  # or private: tasks have their own loopback and can reach nothing else
    observe: bool = True  # hooks report the progress of a program that does not report itself
    chief_name: str = "chief"  # in TF_CONFIG
    seed: int | None = None  # None: random numbers come from the kernel
    job: str = ""
    id: str = ""  # distinguishes it from an earlier run of the same name, whose folder may still exist
    resumed: int = 0  # how often it was resumed after it had ended or was stopped
    pip: list[str] = field(default_factory=list)  # what a pod installs before the start
    secret: str = ""  # the file that holds the run's token, if it is not in the folder
    snapshots: str = ""  # where complete checkpoints and the model are copied: a URL, or a folder
    weights: str = ""  # the checkpoints whose weights it starts with: a folder or URL, perhaps with @STEP
    is_new: bool = False  # its name was generated at its start: there can be no snapshots of it
    cache: str = ""  # a folder for compiled code that outlives the run; if empty, it is in the run's own
    claim: str = ""  # which pods mount the volume that outlives them: leader, shared (all), or none
    stages: dict[str, StageSpec] = field(default_factory=dict)  # role -> what it runs, if not `program`
    ingest: IngestSpec | None = None
    is_replaced: bool = False  # an agent that has to leave is restarted elsewhere, and the run continues

    @property
    def token(self) -> str:
        """The file that holds the run's token."""
        return self.secret or f"{self.folder}/token"

    def seat(self, machine: int) -> Seat:
        """The seat of a machine in a run whose machines share its workers; 0 is the leading agent's."""
        return Seat(self.name_of(machine), self.slots_of(machine))

    def seat_of(self, role: str, index: int) -> Seat:
        """The seat of one member, if every member has its own machine."""
        processes = self.members[role][index] if role in self.members else self.processes.get(role, 1)
        return Seat(f"{role}-{index}", {role: processes})

    def name_of(self, machine: int) -> str:
        """The name of the agent on that machine."""
        return f"machine-{machine}"

    def slots_of(self, machine: int) -> dict[str, int]:
        """How many tasks of each role a machine hosts. Workers are distributed evenly, by whole members if
        these differ; all other roles are on the first machine."""
        members = self.members.get("worker", [1] * self.sizes.get("worker", 0))
        each, more = divmod(len(members), self.machines)
        first = machine * each + min(machine, more)
        share = sum(members[first : first + each + (machine < more)])
        others = {role: count for role, count in self.sizes.items() if role != "worker"}
        return {**(others if machine == 0 else {}), "worker": share}

    @property
    def is_alone(self) -> bool:
        """Whether this is the only agent the run will ever have: it hosts every task."""
        return self.machines == 1 and self.brings_crew

    def program_of(self, role: str) -> Program:
        """What the tasks of this role run."""
        return self.stages[role].program if role in self.stages else self.program

    def env_of(self, role: str) -> dict[str, str]:
        """The job's variables for the tasks of this role."""
        return {**self.env, **self.stages[role].env} if role in self.stages else self.env

    def pip_of(self, role: str) -> list[str]:
        """What the pods of this role install. ps read no data, so they do not need the ingest's packages."""
        own = self.stages[role].pip if role in self.stages else []
        ingest = self.ingest.pip if self.ingest is not None and role != "ps" else []
        return list(dict.fromkeys([*self.pip, *own, *ingest]))

    @property
    def is_ingest_alone(self) -> bool:
        """Whether the run is over once the data is there."""
        return self.ingest is not None and self.ingest.alone

    def is_elastic(self, role: str) -> bool:
        """Whether the gang may run with fewer tasks of this role than `sizes` says."""
        return self.least.get(role, self.sizes[role]) < self.sizes[role]

    def tasks_of(self, role: str, members: int) -> int:
        """How many tasks that many members of this role have. The tasks of a member share a machine."""
        differing = self.members.get(role)
        return members * self.processes.get(role, 1) if differing is None else sum(differing[:members])

    def members_of(self, role: str, tasks: int) -> int:
        """How many members the first `tasks` tasks of this role belong to, the last perhaps in part."""
        differing = self.members.get(role)
        if differing is None:
            return -(-tasks // self.processes.get(role, 1))
        return next(
            (count for count in range(len(differing)) if sum(differing[:count]) >= tasks), len(differing)
        )

    def refuses_workers(self, workers: int) -> str | None:
        """Why a live run cannot have that many workers, or None."""
        if "worker" not in self.sizes:
            return "its job has no workers"
        size = self.members_of("worker", self.sizes["worker"])
        least, most, why = 1, max(_MOST_WORKERS, size), ""
        if self.is_elastic("worker"):
            least, most, why = self.members_of("worker", self.least["worker"]), size, ", as its job says"
        elif "worker" in self.members:
            least, most, why = size, size, ": its machines have different numbers of processes"
        elif self.machines > 1 and self.brings_crew:
            most, why = size, f": its {self.machines} machines have room for no more"
        elif any(self.gpus.tasks.get(f"worker-{index}") for index in range(self.sizes["worker"])):
            most, why = size, ": it was given GPUs for no more"
        return None if least <= workers <= most else f"it can have {least} to {most} workers{why}"

    def to_json(self) -> str:
        """Return the content of `agent.json`, with a version for `from_json` to check."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read the content of `agent.json`. Raises ValueError: LaterVersion if a later Oarlock wrote it."""
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        check_version(data)
        stages = data.get("stages", {})
        if not isinstance(stages, dict):
            raise ValueError("its stages are not a JSON object")
        return build(
            cls,
            data,
            program=build(Program, data.get("program")),
            limits=build(LimitsSpec, data.get("limits", {})),
            gpus=build(Gpus, data.get("gpus", {})),
            stages={name: build(StageSpec, one, program=_program(one)) for name, one in stages.items()},
            ingest=_ingest(data["ingest"]) if data.get("ingest") else None,
        )


def _program(stage: Any) -> Program:
    return build(Program, stage.get("program") if isinstance(stage, dict) else None)


def _ingest(data: Any) -> IngestSpec:
    has_program = isinstance(data, dict) and data.get("program") is not None
    return build(IngestSpec, data, program=_program(data) if has_program else None)
