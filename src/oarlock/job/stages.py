"""The stages before and beside the training: preparing the data, and scoring checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from oarlock.job.cluster_names import IMAGE
from oarlock.job.parsing import compound_kinds, kinds
from oarlock.job.parsing.fields import FieldError, Section, Sections
from oarlock.job.reserved_variables import refused_variable
from oarlock.job.roles import Role
from oarlock.quantities import Size

# The fields that say what runs; a job has exactly one of them.
WAYS = ("program", "module", "command")
PROGRAM = kinds.text("the path of a Python program")
MODULE = kinds.text(
    "the name of a module such as package.train",
    r"(?!.*\.py$)[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*",
    hint=lambda written: "for a file use program" if "/" in written or written.endswith(".py") else "",
)
COMMAND = compound_kinds.words("a command as a list of words or one line", least=1)
ARGS = compound_kinds.words("a list of arguments or one line")
PIP = compound_kinds.words(
    "packages as a list or one line",
    word=kinds.text(
        "a package as pip takes it, such as numpy>=2",
        r"[A-Za-z0-9./-](?:.*[^;\s])?",
        hint=lambda written: "one with spaces is an item of a list",
    ),
)
VARIABLES = compound_kinds.variables(refused_variable)
_SOURCE = kinds.text("a path, or an https://, s3://, gs:// or az:// URL")
_SHA256 = kinds.text("64 hexadecimal digits", "[0-9a-fA-F]{64}")
_FILE = kinds.text(
    "a path below the data folder such as train.csv",
    r"(?![./])(?!.*(?:^|/)\.\.?(?:/|$))(?!.*//)[^\x00-\x1f]+",
)


class Stage(Section, frozen=True, kw_only=True):
    """One stage: a program, module or command, and what its machine needs."""

    shorthand: ClassVar[str | None] = "program"

    program: Annotated[str | None, PROGRAM, "The Python program to run."] = None
    module: Annotated[str | None, MODULE, "The Python module to run, as in python -m."] = None
    command: Annotated[tuple[str, ...] | None, COMMAND, "The command to run if it is not Python."] = None
    args: Annotated[tuple[str, ...], ARGS, "Its arguments."] = ()
    env: Annotated[dict[str, str], VARIABLES, "Variables for it, besides the job's."] = msgspec.field(
        default_factory=dict
    )
    pip: Annotated[tuple[str, ...], PIP, "Packages that its pod installs, besides the job's."] = ()
    cpu: Annotated[float, kinds.cores(), "CPU cores."] = 1.0
    memory: Annotated[Size, kinds.size(), "Memory."] = Size(2 * 1024**3)

    def check(self) -> None:
        """Refuse a stage with nothing to run, or with more than one thing to run."""
        check_ways(self, required=True)


class Source(Section, frozen=True, kw_only=True):
    """One file or folder to fetch."""

    shorthand: ClassVar[str | None] = "url"

    url: Annotated[str, _SOURCE, "Where it is: a path, or an https://, s3://, gs:// or az:// URL."]
    sha256: Annotated[str | None, _SHA256, "The SHA-256 of the file, to compare."] = None


class Ingest(Stage, frozen=True, kw_only=True):
    """Prepares the training data in DATA_DIR, once; later runs with the same ingest find it there."""

    lacks: ClassVar[Mapping[str, str]] = {
        "image": "an ingest runs in the pods of the gang, in their image: "
        "set kubernetes.image, or add what it needs with ingest.pip",
        "gpu": "an ingest runs in the pods of the gang before their tasks, and sees the GPUs of those: "
        "set roles.worker.gpu",
    }

    when: Annotated[
        str,
        kinds.choice("once", "always", "never"),
        "once: unless it was done before; always: in every run; never: use what is there.",
    ] = "once"
    alone: Annotated[bool, kinds.flag(), "The run ends once the data is there, without training."] = False
    sources: Annotated[
        dict[str, Source],
        Sections("names and sources", Source, names=_FILE),
        "What to fetch first, by name; the program finds it in SOURCES_DIR.",
    ] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Without a program, the sources themselves are the data."""
        check_ways(self, required=not self.sources)
        if self.alone and self.when == "never":
            raise FieldError(("when",), "never leaves nothing to do: the run is for the ingest alone")


class Evaluate(Stage, frozen=True, kw_only=True):
    """Scores checkpoints while the training runs, as the role evaluator, and for `oarlock evaluate`."""

    gpu: Annotated[int | None, kinds.whole(0), "GPUs. Default: none."] = None
    image: Annotated[str | None, IMAGE, "Its own image, on Kubernetes."] = None

    @property
    def role(self) -> Role:
        """The machine that it needs."""
        return Role(cpu=self.cpu, memory=self.memory, gpu=self.gpu, image=self.image)


def check_ways(section: Section, required: bool) -> None:
    """Raise FieldError unless the section has exactly one thing to run, or none where none is required."""
    given = [name for name in WAYS if getattr(section, name) is not None]
    if not given and required:
        raise FieldError((), "there is nothing to run; give one of program, module and command")
    if len(given) > 1:
        raise FieldError((given[1],), f"{given[0]} is given too; give exactly one of them")
