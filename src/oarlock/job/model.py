"""The job: what the user wants to train, checked and immutable.

`parse` takes plain data (from YAML, TOML or flags) and `Job(...)` takes the same from Python; both run the
same checks. Nothing here touches a file: `runnable` checks whether the program exists. Pure.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from oarlock.job.kubernetes_section import Kubernetes
from oarlock.job.parsing import kinds
from oarlock.job.parsing.fields import FieldError, Section, fields_of, read_section
from oarlock.job.parsing.json_schema import schema_of
from oarlock.job.reserved_variables import refused_variable
from oarlock.job.roles import Role, Roles
from oarlock.job.serve_section import Serve
from oarlock.job.stages import (
    ARGS,
    COMMAND,
    MODULE,
    PIP,
    PROGRAM,
    VARIABLES,
    WAYS,
    Evaluate,
    Ingest,
    Source,
    check_ways,
)
from oarlock.job.volumes import Claim, SecretUse, Volume
from oarlock.quantities import Duration, Replicas, Size
from oarlock.run import placeholders
from oarlock.run.cluster import TRAINERS

__all__ = [
    "WAYS",
    "Claim",
    "Duration",
    "Evaluate",
    "FieldError",
    "Ingest",
    "Job",
    "Kubernetes",
    "Limits",
    "Replicas",
    "Role",
    "Roles",
    "SecretUse",
    "Serve",
    "Size",
    "Source",
    "Storage",
    "Volume",
    "parse",
    "schema",
    "slug",
    "to_data",
]

# A run is called `<job>-<4 letters>` and has at most 40 characters, so that Kubernetes takes `<run>-<role>`.
LONGEST_NAME = 35


def parse(written: Mapping[str, Any]) -> Job:
    """Make a job of plain data; raises FieldError (a JobError) with the field's path and the problem."""
    return read_section(Job, written)


def to_data(job: Section, *, full: bool = False) -> dict[str, Any]:
    """Plain data that `parse` reads back: the fields that differ from their defaults, or all of them."""
    data: dict[str, Any] = {}
    for name, field in fields_of(type(job)).items():
        value = getattr(job, name)
        # A role without groups is not a list, so that even full data has no groups.
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


# Not a valid name, so that it never equals one that is given, not even an empty one.
_UNNAMED = "(after what it runs)"
_PLACE = kinds.text("a folder or a URL")
_SNAPSHOTS = kinds.bucket("s3", "gs", "az")
_WEIGHTS = kinds.bucket_at_step("s3", "gs", "az")
_NAME = kinds.text(
    f"lower-case letters, digits and '-', starting with a letter, at most {LONGEST_NAME} characters",
    f"[a-z](?:[a-z0-9-]{{0,{LONGEST_NAME - 2}}}[a-z0-9])?",
    hint=lambda written: f"try {slug(written)}",
)
_FRAMEWORK = kinds.choice("auto", "tensorflow", "torch", "jax", "none")
_LIMIT = kinds.duration("1s", or_none=True)


class Storage(Section, frozen=True, kw_only=True):
    """Where data and results are kept: folders relative to the job file, or URLs such as s3://bucket/path."""

    data: Annotated[str | None, _PLACE, "Training data; the program finds it in DATA_DIR."] = None
    checkpoints: Annotated[str | None, _PLACE, "Checkpoints; CHECKPOINT_DIR in the program."] = None
    eval: Annotated[str | None, _PLACE, "What the evaluation writes; EVAL_DIR in the program."] = None
    model: Annotated[str | None, _PLACE, "The exported model; MODEL_DIR in the program."] = None
    logs: Annotated[str | None, _PLACE, "TensorBoard and other logs; LOG_DIR in the program."] = None
    snapshots: Annotated[
        str | None, _SNAPSHOTS, "Copies of checkpoints and model in a bucket: s3://, gs://, az://."
    ] = None
    weights: Annotated[
        str | None,
        _WEIGHTS,
        "A folder or URL of another run's checkpoints, to start from its weights: the newest, or that of "
        "@STEP. `run --from` finds it by the run's name.",
    ] = None

    def check(self) -> None:
        """Refuse what needs a folder of checkpoints if they are in a bucket already."""
        if self.snapshots and "://" in (self.checkpoints or ""):
            raise FieldError(("snapshots",), "snapshots copy a folder, and checkpoints is a URL")
        if self.weights and "://" in (self.checkpoints or ""):
            raise FieldError(("weights",), "weights are put into a folder, and checkpoints is a URL")


class Limits(Section, frozen=True, kw_only=True):
    """When Oarlock restarts a run, gives it up or stops it."""

    restarts: Annotated[int, kinds.whole(0), "Failures to recover from; progress refills the budget."] = 3
    stall: Annotated[
        Duration | None,
        _LIMIT,
        "Restart a program that stops reporting progress for this long; none for never.",
    ] = Duration(600)
    runtime: Annotated[Duration | None, _LIMIT, "Stop the run after this time; none for no limit."] = None
    rendezvous: Annotated[Duration, kinds.duration("1s"), "How long to wait for all tasks."] = Duration(300)
    grace: Annotated[Duration, kinds.duration(), "The time that a task has to stop before it is killed."] = (
        Duration(30)
    )
    evaluate: Annotated[
        Duration, kinds.duration(), "How long to wait for the evaluator's last score after the training."
    ] = Duration(600)
    logs: Annotated[
        Size | None,
        kinds.size("64Ki", or_none=True),
        "How much of each task's newest output to keep; none for all.",
    ] = Size(1 << 30)


class Job(Section, frozen=True, kw_only=True):
    """A training job for Oarlock. It names exactly one of program, module and command."""

    name: Annotated[str, _NAME, "Runs are called <name>-<4 letters>. Default: the folder or program."] = (
        _UNNAMED
    )
    program: Annotated[str | None, PROGRAM, "The Python program to run: train.py."] = None
    module: Annotated[str | None, MODULE, "The Python module to run, as in python -m."] = None
    command: Annotated[
        tuple[str, ...] | None,
        COMMAND,
        "The command to run if it is not Python: a list of words, or one line.",
    ] = None
    args: Annotated[
        tuple[str, ...],
        ARGS,
        "Its arguments; {rank}, {world} and {coordinator} (host:port) are replaced for each task.",
    ] = ()
    pip: Annotated[tuple[str, ...], PIP, "Packages that each pod installs first, as pip takes them."] = ()
    env: Annotated[dict[str, str], VARIABLES, "Environment variables for every task."] = msgspec.field(
        default_factory=dict
    )
    framework: Annotated[str, _FRAMEWORK, "The framework; auto detects it from the program's imports."] = (
        "auto"
    )
    roles: Annotated[Roles, "The roles of the gang. Default: one worker."] = Roles(worker=Role())
    ingest: Annotated[Ingest | None, "Prepares the training data, once; it runs before the training."] = None
    evaluate: Annotated[Evaluate | None, "Scores checkpoints while the training runs."] = None
    serve: Annotated[Serve | None, "How the model is served, once it is trained."] = None
    storage: Annotated[Storage, "Where data, checkpoints, the model and logs are kept."] = Storage()
    limits: Annotated[Limits, "When Oarlock restarts a run, gives it up or stops it."] = Limits()
    warm: Annotated[
        bool | Duration,
        kinds.flag_or_duration("1s"),
        "Import the framework once and fork the tasks; 10m: keep it loaded for the next run; false: never.",
    ] = True
    observe: Annotated[
        bool,
        kinds.flag(),
        "Show progress as Keras, Lightning, transformers, accelerate and tqdm know it.",
    ] = True
    chief_name: Annotated[
        str, kinds.choice("chief", "master"), "What TF_CONFIG calls the chief; older programs ask for master."
    ] = "chief"
    network: Annotated[
        str,
        kinds.choice("shared", "private"),
        "private: tasks on this machine reach only each other, and nothing else reaches them.",
    ] = "shared"
    seed: Annotated[
        int | None, kinds.whole(0, 2**32 - 1), "The seed for the order of examples and all random numbers."
    ] = None
    kubernetes: Annotated[Kubernetes, "Settings for Kubernetes."] = Kubernetes()

    def check(self) -> None:
        """Refuse a job with nothing to run, or with more than one thing to run."""
        check_ways(self, required=True)
        if self.evaluate and self.evaluate.role != Role() and self.roles.evaluator not in (None, Role()):
            raise FieldError(
                ("evaluate",), "roles.evaluator says what its machine needs; say it in one of them"
            )
        if self.ingest and "://" in (self.storage.data or ""):
            raise FieldError(("storage", "data"), "an ingest writes to a folder; remove it, or name a folder")
        if self.chief_name != "chief" and not self.roles.chief:
            raise FieldError(("chief_name",), "it names the chief, and there is none; add roles.chief: 1")
        try:
            self.kubernetes.check_in_job(list(self.gang), self.env, refused_variable)
        except FieldError as problem:
            raise problem.inside("kubernetes") from None
        self._check_placeholders()
        if self.name == _UNNAMED:
            msgspec.structs.force_setattr(self, "name", slug(self.subject))

    def _check_placeholders(self) -> None:
        own = ["evaluator"] if self.evaluate else []
        unranked = [role for role in self.gang if role not in TRAINERS and role not in own]
        for name in placeholders.RANKED if unranked else ():
            if name in placeholders.used(self.args):
                raise FieldError(
                    ("args",),
                    f"{{{name}}} has no value in {unranked[0]}, which has no rank; "
                    f"let the program read {placeholders.VARIABLES[name]} from its environment",
                )

    @property
    def gang(self) -> dict[str, Role]:
        """The roles that the job uses; a job with `evaluate` has an evaluator."""
        given = {name: getattr(self.roles, name) for name in fields_of(Roles)}
        if self.evaluate and given["evaluator"] in (None, Role()):
            given["evaluator"] = self.evaluate.role
        return {name: role for name, role in given.items() if role is not None}

    @property
    def subject(self) -> str:
        """What a job without a name is named after."""
        if self.module:
            return self.module.rpartition(".")[2]
        path = self.program or (self.command or ("",))[0]
        return path.rstrip("/").rpartition("/")[2].removesuffix(".py")
