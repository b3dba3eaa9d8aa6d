"""Which model `oarlock serve` serves: the model of a run, a folder or a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oarlock.cli.session import find_run
from oarlock.engines.engine import Engine
from oarlock.engines.known_engines import traits_of
from oarlock.engines.shared import specs
from oarlock.errors import JobError, OarlockError, UnknownRun
from oarlock.job.job_file import JOB_FILES
from oarlock.job.job_file import load as load_job
from oarlock.job.model import Job, slug
from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import versions
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.wording import printable

_SCHEMES = ("s3://", "gs://", "az://")
_FRAMEWORKS = {"saved_model": "tensorflow", "torch_export": "torch", "jax_export": "jax"}


@dataclass(frozen=True)
class ModelSource:
    """A model, and the job that it comes from."""

    place: str  # a folder or a URL
    job: Job
    folder: Path  # the job's
    run: RunFolder | None = None
    is_job_ours: bool = True  # False: another machine sent the run with this job

    @property
    def framework(self) -> str:
        """The framework that the newest version needs, as far as its folder shows."""
        is_here = self.run is None or traits_of(self.run).files_are_here or self.place == _pulled(self.run)
        found = versions(Path(self.place)) if is_here and "://" not in self.place else []
        try:
            return _FRAMEWORKS.get(found[-1].manifest().format, "none") if found else "none"
        except (BadManifest, OSError):
            return "none"


def find(target: str | None, engine: Engine) -> ModelSource:
    """Return the model of a target; None: the newest run that has a model. Raises OarlockError."""
    if target is None:
        return of_run(_newest(engine), engine)
    if target.startswith(_SCHEMES):
        name = target.rstrip("/").rpartition("/")[2]
        return ModelSource(target, _bare_job(name), Path.cwd())
    if "://" in target:
        raise JobError(f"{target}: expected {', '.join(_SCHEMES)}, a folder or a run")
    path = Path(target)
    if path.is_dir() and target not in {run.name for run in runs.all_runs()}:
        return _of_folder(path.absolute(), engine)
    if "/" in target:
        raise JobError(f"{target}: no such folder")
    return of_run(find_run.recorded(target), engine)


def of_run(run: RunFolder, engine: Engine) -> ModelSource:
    """Return the model of a run. Raises OarlockError if it has none, or none that this engine can reach."""
    job = specs.job_of(run.job_file.read_text(), str(run.job_file))
    is_here = traits_of(run).files_are_here
    folder = Path(run.spec().cwd) if is_here else run.sent_from or Path.cwd()
    return ModelSource(_place(run, job, engine), job, folder, run, run.is_from_here)


def _place(run: RunFolder, job: Job, engine: Engine) -> str:
    """Where the model is. Raises OarlockError."""
    place = run.folder("model")
    is_here = traits_of(run).files_are_here
    if not is_here and "://" not in place and (snapshots := _among_snapshots(run, job, engine)):
        return snapshots
    if not is_here and not engine.traits.sends_program and "://" not in place:
        if versions(Path(_pulled(run))):
            return _pulled(run)
        raise OarlockError(
            f"the model of {run.name} is on its cluster: `oarlock serve {run.name} --on {run.engine}` serves "
            f"it there; `oarlock pull {run.name}` copies it here"
        )
    if is_here and "://" not in place and not versions(Path(place)):
        raise OarlockError(
            f"{run.name} has no model: {place} holds neither a SavedModel nor numbered versions; "
            "`oarlock.export(model)` in its program writes one"
        )
    is_read_here = "://" in place and not engine.traits.sends_program
    if is_read_here and not run.is_from_here and not place.startswith(_SCHEMES):  # such as file:///
        raise OarlockError(
            f"{run.name} was not sent from here, and its model is not in a bucket: {printable(place)}"
        )
    return place


def _pulled(run: RunFolder) -> str:
    """Where `oarlock pull` puts the model of a run on a cluster."""
    return str(run.path / "model")


def _among_snapshots(run: RunFolder, job: Job, engine: Engine) -> str | None:
    """Where a run on a cluster keeps its model in a bucket, if this engine cannot reach the model. None
    for another user's run: its job would decide which server sees this user's credentials."""
    spec = run.spec()
    is_reached = engine.traits.sends_program and job.kubernetes.claim is not None
    if is_reached or "://" not in spec.snapshots or not run.is_from_here:
        return None
    return f"{spec.snapshots}/{spec.run}/model"


def _newest(engine: Engine) -> RunFolder:
    for run in runs.all_runs():
        # The run of another user is served only if this user names it.
        if run.serving_file.exists() or run.later() or not run.is_from_here:
            continue
        try:
            of_run(run, engine)
        except (OarlockError, OSError):
            continue
        if traits_of(run).files_are_here or run.state().state == "succeeded":
            return run
    raise UnknownRun(
        "no run has a model yet; train one with `oarlock run`, or name a folder with a model or a run that "
        "another machine sent"
    )


def _of_folder(folder: Path, engine: Engine) -> ModelSource:
    """The model in a folder; in a job's folder, the model of the job's newest run."""
    if versions(folder):
        return ModelSource(str(folder), _bare_job(_name(folder)), folder)
    if not any((folder / name).exists() for name in JOB_FILES):
        raise JobError(f"{folder} holds no model: neither a SavedModel nor numbered versions such as 1/")
    found = load_job(str(folder))
    for run in runs.all_runs():
        if run.state().job == found.job.name and not run.serving_file.exists():
            source = of_run(run, engine)
            return ModelSource(source.place, found.job, found.folder, run)
    raise JobError(f"there is no run of {found.job.name} yet; `oarlock run {folder}` trains the model")


def _name(folder: Path) -> str:
    """Many folders are called `model`: the parent folder tells them apart."""
    return folder.parent.name if folder.name in ("model", "models") and folder.parent.name else folder.name


def _bare_job(name: str) -> Job:
    return Job(name=slug(name or "model"), module="oarlock.serving")
