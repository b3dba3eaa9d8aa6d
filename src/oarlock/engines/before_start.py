"""What an engine answers before there is a run: what would be started, and whether it can be.

A part of the interface `engine.Engine`. Nothing here creates anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oarlock.engines.known_engines import Traits, listed, traits_of
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder

if TYPE_CHECKING:  # reading job files is not needed to look at a run
    from oarlock.agent.protocol.spec import Spec
    from oarlock.engines.shared.serve_order import ServeOrder
    from oarlock.job.job_file import JobFile
    from oarlock.job.model import Job

Finding = dict[str, object]


def finding(name: str, state: str, detail: str, fix: str | None = None) -> Finding:
    """Return the result of a check.

    `state` is ok, warning, unknown or failed; failed means that nothing can run. For a framework it is ok,
    missing or broken, and the finding also has its `version`.
    """
    return {"name": name, "state": state, "detail": detail, "fix": fix}


class Rendered(Protocol):
    """The objects of a run or of a served model, and the file that another tool reads."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects, in the order in which they have to be created."""

    @property
    def text(self) -> str:
        """The file, with comments that say what to do with it."""


class BeforeStart(Protocol):
    """The part of an engine that verbs ask before a run starts."""

    name: str  # in `ENGINES`

    @property
    def traits(self) -> Traits:
        """Its line in `ENGINES`."""
        return listed(self.name).traits

    def ignores(self, jobfile: JobFile) -> list[str]:
        """List the fields of a job that have no effect with this engine."""
        return []

    def checkpoints_for(self, job: Job, run: RunFolder) -> str | None:
        """Return where a new run of this job would find the checkpoints of `run`; None: out of its reach."""
        is_here = traits_of(run).files_are_here and not self.traits.sends_program
        return run.folder("checkpoints") if is_here else None

    def spec_for(self, jobfile: JobFile, record: Path, machines: int) -> Spec:
        """Return the spec of a run's agents, as far as it is known before the run."""
        from oarlock.engines.shared import local_spec

        return local_spec.spec_for(jobfile.job, jobfile.folder, record, machines)

    def plan(self, jobfile: JobFile, name: str) -> dict[str, Any]:
        """Return what a run would create and need, as `oarlock plan --json` prints it.

        `ok` is whether it would run; an engine leaves out the sections that it knows nothing about.
        """
        raise OarlockError(f"the engine {self.name} cannot plan a run")

    def render(self, jobfile: JobFile, name: str) -> Rendered:
        """Return a run as a file that starts it without Oarlock."""
        raise OarlockError(f"the engine {self.name} cannot render a run")

    def render_server(self, order: ServeOrder, name: str | None, form: str) -> Rendered:
        """Return a served model as such a file. `form` is deployment or kserve."""
        raise OarlockError(f"the engine {self.name} cannot render a served model")

    def check(self, *, context: str | None, namespace: str | None, image: str | None) -> Iterator[Finding]:
        """Yield the result of each check of the place where runs would run, as soon as it is known."""
        yield finding(self.name, "unknown", f"cannot tell: the engine {self.name} has no checks")
