"""The job: what the user wants trained, checked and immutable.

`parse` takes plain data (from YAML, TOML or flags), `Job(...)` takes the same from Python; both end in the
same checks. Nothing here touches a file: whether the program exists is `jobfile`'s business. Pure.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from oarlock.job.kubernetes_section import (
    IMAGE,
    NODE_SELECTOR,
    TOLERATIONS,
    Claim,
    Kubernetes,
    SecretUse,
    Volume,
)
from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections, fields_of, read_section
from oarlock.job.parsing.json_schema import schema_of
from oarlock.quantities import Duration, Replicas, Size

__all__ = [
    "WAYS",
    "Claim",
    "Duration",
    "FieldError",
    "Job",
    "Kubernetes",
    "Limits",
    "Replicas",
    "Role",
    "Roles",
    "SecretUse",
    "Size",
    "Storage",
    "Volume",
    "parse",
    "schema",
    "slug",
    "to_data",
]

# A run is called `<job>-<4 letters>` and has at most 40 characters, so that Kubernetes takes `<run>-<role>`.
LONGEST_NAME = 35
# The ways to say what runs; a job has exactly one.
WAYS = ("program", "module", "command")


def parse(written: Mapping[str, Any]) -> Job:
    """Plain data to a job; raises FieldError (a JobError) with the field's path and what is wrong there."""
    return read_section(Job, written)


def to_data(job: Section, *, full: bool = False) -> dict[str, Any]:
    """Plain data that `parse` takes back: what differs from the defaults, or everything."""
    data: dict[str, Any] = {}
    for name, field in fields_of(type(job)).items():
        value = getattr(job, name)
        # A role without groups is no list, so that even in full there are none to give.
        if value == field.default and (value is None or not full or name == job.list_of):
            continue
        data[name] = _plain(value, full)
    return data


def _plain(value: Any, full: bool) -> Any:
    if value is None:
        return "none"  # no limit; a null would mean the default
    if isinstance(value, Role) and value.groups:
        return [_plain(group, full) for group in value.groups]
    if isinstance(value, Role) and not full:
        data = to_data(value)
        return data if data.keys() - {"replicas"} else _plain(value.replicas, full)
    if isinstance(value, Section):
        return to_data(value, full=full)
    if isinstance(value, Replicas) and not value.elastic:
        return value.min
    if isinstance(value, (Duration, Size, Replicas)):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item, full) for item in value]
    if isinstance(value, dict) and any(isinstance(item, Section) for item in value.values()):
        return {name: _plain(item, full) for name, item in value.items()}
    return copy.deepcopy(value)


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of a job file, for editors."""
    one_of = [{"required": [way], "properties": {way: {"not": {"type": "null"}}}} for way in WAYS]
    return {**schema_of(Job), "oneOf": one_of}


def slug(text: str) -> str:
    """The nearest valid job name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}"
    return name[:LONGEST_NAME].strip("-")


def refused_variable(name: str) -> str | None:
    """Why a variable is not the user's to set, or None."""
    if name in _FOLDERS:
        return f"Oarlock sets it; use storage.{_FOLDERS[name]}"
    if name in _CONTRACT or name.startswith(("OARLOCK_", "TORCHELASTIC_")):
        return "Oarlock sets it for each task; leave it out"
    return None


# The contract of every task: a value of the user's would tell all of them the same rank.
_CONTRACT = {"TF_CONFIG", "CLUSTER_CONFIG", "POD_NAME", "MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"} | {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
}
_FOLDERS = {"DATA_DIR": "data", "CHECKPOINT_DIR": "checkpoints", "MODEL_DIR": "model", "LOG_DIR": "logs"}

# No valid name, so that a name that is given, even an empty one, is never taken for it.
_UNNAMED = "(after what it runs)"
_PLACE = kinds.text("a folder or a URL")
_SNAPSHOTS = kinds.bucket("s3", "gs", "az")
_NAME = kinds.text(
    f"lower-case letters, digits and '-', starting with a letter, at most {LONGEST_NAME} characters",
    f"[a-z](?:[a-z0-9-]{{0,{LONGEST_NAME - 2}}}[a-z0-9])?",
    hint=lambda written: f"try {slug(written)}",
)
_MODULE = kinds.text(
    "the name of a module such as package.train",
    r"(?!.*\.py$)[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*",
    hint=lambda written: "for a file use program" if "/" in written or written.endswith(".py") else "",
)
_COMMAND = kinds.words("a command as a list of words or one line", least=1)
_PIP = kinds.words(
    "packages as a list or one line",
    word=kinds.text(
        "a package as pip takes it, such as numpy>=2",
        r"[A-Za-z0-9./-](?:.*[^;\s])?",
        hint=lambda written: "one with spaces is an item of a list",
    ),
)
_FRAMEWORK = kinds.choice("auto", "tensorflow", "torch", "jax", "none")
_LIMIT = kinds.duration("1s", or_none=True)


class Role(Section, frozen=True):
    """One role of the gang: how many members it has and what each of its machines needs.

    A list is short for `groups`: members on different machines, such as some with a GPU and some without.
    """

    shorthand: ClassVar[str | None] = "replicas"
    list_of: ClassVar[str | None] = "groups"

    replicas: Annotated[Replicas, kinds.replicas(), "How many: a number, or min..max."] = Replicas(1)
    processes: Annotated[int, kinds.whole(1), "Processes on each machine; one per GPU is usual."] = 1
    cpu: Annotated[float, kinds.cores(), "CPU cores for each machine, such as 2, 0.5 or 500m."] = 1.0
    memory: Annotated[Size, kinds.size(), "Memory for each machine, such as 4Gi."] = Size(2 * 1024**3)
    gpu: Annotated[int, kinds.whole(0), "GPUs for each machine."] = 0
    image: Annotated[str | None, IMAGE, "Its image on Kubernetes, if it needs its own."] = None
    node_selector: Annotated[
        dict[str, str], NODE_SELECTOR, "Labels that its nodes on Kubernetes must have."
    ] = msgspec.field(default_factory=dict)
    tolerations: Annotated[
        tuple[dict[str, Any], ...], TOLERATIONS, "Taints that its pods on Kubernetes may be put on."
    ] = ()
    groups: Annotated[
        tuple[Role, ...],
        Sections("a list of one group or more", Role, least=1),
        "Members that need different machines; a list is short for it.",
    ] = ()

    @property
    def parts(self) -> tuple[Role, ...]:
        """Its groups, or itself alone."""
        return self.groups or (self,)

    def check(self) -> None:
        if not self.groups:
            return
        for number, group in enumerate(self.groups):
            if group.groups:
                raise FieldError(("groups", str(number)), "a group has no groups of its own")
            if group.processes != self.groups[0].processes:
                raise FieldError(
                    ("groups", str(number), "processes"),
                    f"expected {self.groups[0].processes} as in the first group, found {group.processes}",
                )
        # What the groups have in common, as the outer role's, for those who do not ask for machines.
        self._adopt("replicas", _total(self.groups))
        self._adopt("processes", self.groups[0].processes)
        for name, field in fields_of(Role).items():
            if name not in ("replicas", "processes", "groups"):
                self._adopt(name, field.default)

    def _adopt(self, name: str, value: Any) -> None:
        given = getattr(self, name)
        if given not in (value, fields_of(Role)[name].default):
            raise FieldError((name,), "the role is a list of groups; give it in them")
        msgspec.structs.force_setattr(self, name, value)


def _total(groups: tuple[Role, ...]) -> Replicas:
    try:
        least, most = (sum(getattr(group.replicas, end) for group in groups) for end in ("min", "max"))
        return Replicas(least, most)
    except ValueError as problem:
        raise FieldError(("groups",), f"together: {problem}") from None


class Roles(Section, frozen=True, kw_only=True):
    """Who takes part. A bare number is short for `replicas`: `worker: 4`, `worker: 2..8`."""

    chief: Annotated[Role | None, "The one that leads and saves; without it worker 0 does."] = None
    worker: Annotated[Role | None, "Those that train; min..max lets the gang shrink and grow."] = None
    ps: Annotated[Role | None, "Parameter servers (TensorFlow)."] = None
    evaluator: Annotated[Role | None, "The one that scores checkpoints beside the training."] = None

    def check(self) -> None:
        for name, role in (("chief", self.chief), ("evaluator", self.evaluator)):
            if role and role.replicas.max > 1:
                raise FieldError((name, "replicas"), f"there can be only one {name}, found {role.replicas}")
        if self.ps and self.ps.replicas.elastic:
            raise FieldError(("ps", "replicas"), f"expected a fixed number, found {self.ps.replicas}")
        if self.ps and not self.worker:
            raise FieldError(("ps",), "parameter servers need at least one worker; add worker")
        if not self.chief and not self.worker:
            raise FieldError((), "there is no chief and no worker; add worker")


class Storage(Section, frozen=True, kw_only=True):
    """Where things are kept: folders, relative to the job file, or URLs such as s3://bucket/path."""

    data: Annotated[str | None, _PLACE, "Training data; the program finds it in DATA_DIR."] = None
    checkpoints: Annotated[str | None, _PLACE, "Checkpoints; CHECKPOINT_DIR in the program."] = None
    model: Annotated[str | None, _PLACE, "The exported model; MODEL_DIR in the program."] = None
    logs: Annotated[str | None, _PLACE, "TensorBoard and other logs; LOG_DIR in the program."] = None
    snapshots: Annotated[
        str | None, _SNAPSHOTS, "Copies of checkpoints and model for other machines: s3://, gs://, az://."
    ] = None

    def check(self) -> None:
        if self.snapshots and "://" in (self.checkpoints or ""):
            raise FieldError(("snapshots",), "they are made of a folder, and checkpoints is a URL")


class Limits(Section, frozen=True, kw_only=True):
    """When a run is restarted, given up or stopped."""

    restarts: Annotated[int, kinds.whole(0), "Failures to recover from; progress refills the budget."] = 3
    stall: Annotated[
        Duration | None,
        _LIMIT,
        "Restart a program that has reported progress and then none for so long; none for never.",
    ] = Duration(600)
    runtime: Annotated[Duration | None, _LIMIT, "Stop the run after so long; none for no limit."] = None
    rendezvous: Annotated[Duration, kinds.duration("1s"), "How long to wait for all members."] = Duration(300)
    grace: Annotated[Duration, kinds.duration(), "From asking a task to stop to killing it."] = Duration(30)
    logs: Annotated[
        Size | None,
        kinds.size("64Ki", or_none=True),
        "Output of each task to keep, the newest; none for all.",
    ] = Size(1 << 30)


class Job(Section, frozen=True, kw_only=True):
    """A training job for Oarlock. It names exactly one of program, module and command."""

    name: Annotated[str, _NAME, "Runs are called <name>-<4 letters>. Default: the folder or program."] = (
        _UNNAMED
    )
    program: Annotated[
        str | None, kinds.text("the path of a Python program"), "The Python program to run: train.py."
    ] = None
    module: Annotated[str | None, _MODULE, "The Python module to run, as in python -m."] = None
    command: Annotated[
        tuple[str, ...] | None, _COMMAND, "The command to run if it is not Python: words, or one line."
    ] = None
    args: Annotated[tuple[str, ...], kinds.words("a list of arguments or one line"), "Its arguments."] = ()
    pip: Annotated[
        tuple[str, ...], _PIP, "Packages that a pod installs before the start, as pip takes them."
    ] = ()
    env: Annotated[
        dict[str, str], kinds.variables(refused_variable), "Environment variables for every task."
    ] = msgspec.field(default_factory=dict)
    framework: Annotated[str, _FRAMEWORK, "What it trains with; auto looks at the program's imports."] = (
        "auto"
    )
    roles: Annotated[Roles, "Who takes part. Default: one worker."] = Roles(worker=Role())
    storage: Annotated[Storage, "Where data, checkpoints, the model and logs are kept."] = Storage()
    limits: Annotated[Limits, "When a run is restarted, given up or stopped."] = Limits()
    warm: Annotated[
        bool | Duration,
        kinds.flag_or_duration("1s"),
        "Import the framework once and fork the tasks; 10m: keep it for the next run; false: never.",
    ] = True
    network: Annotated[
        str,
        kinds.choice("shared", "private"),
        "private: tasks on this machine reach only each other, and nobody else reaches them.",
    ] = "shared"
    seed: Annotated[
        int | None, kinds.whole(0, 2**32 - 1), "For the order of examples and all random numbers."
    ] = None
    kubernetes: Annotated[Kubernetes, "Settings that only Kubernetes has."] = Kubernetes()

    def check(self) -> None:
        given = [name for name in WAYS if getattr(self, name) is not None]
        if not given:
            raise FieldError((), "there is nothing to run; give one of program, module and command")
        if len(given) > 1:
            raise FieldError((given[1],), f"{given[0]} is given too; give exactly one of them")
        try:
            roles = [name for name in fields_of(Roles) if getattr(self.roles, name)]
            self.kubernetes.check_in_job(roles, self.env, refused_variable)
        except FieldError as problem:
            raise problem.inside("kubernetes") from None
        if self.name == _UNNAMED:
            msgspec.structs.force_setattr(self, "name", slug(self.subject))

    @property
    def subject(self) -> str:
        """What a job without a name is called after."""
        if self.module:
            return self.module.rpartition(".")[2]
        path = self.program or (self.command or ("",))[0]
        return path.rstrip("/").rpartition("/")[2].removesuffix(".py")
