"""What a user asks an engine to serve, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.job.model import Job, Role
from oarlock.records.run_folder import RunFolder
from oarlock.serving.settings import Settings


@dataclass(frozen=True)
class ServeOrder:
    """A model to serve. What only a cluster uses has no effect elsewhere.

    The settings' paths are this machine's, but for the model of a run: that is where the run keeps it.
    """

    settings: Settings
    job: Job
    part: Role  # how many machines, and what each needs; min..max: as many as the load needs
    run: RunFolder | None = None  # the run whose model it is
    framework: str = "none"  # decides the image, where none is named
    pip: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    host: str = ""  # the name by which others reach it from outside of the cluster
    gateway: str = ""  # the Gateway that leads there; else an Ingress does
    folder: Path = field(default_factory=Path)  # where the job is from
    is_job_ours: bool = True  # False: the job is that of a run which another machine sent

    @property
    def sent_from(self) -> Path | None:
        """The folder that the record of a server names, as far as its job can be trusted (`is_from_here`)."""
        return self.folder.resolve() if self.is_job_ours else None
