"""Score checkpoints of any run on this machine; those of a run on a cluster are copied here first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.score import asked_checkpoints, missing_data, score_once
from oarlock.agent.score.score_error import ScoreError
from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import name_of
from oarlock.engines.engine import engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.engines.shared import local_spec, pull_snapshots, specs
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.run.best_scores import metrics_of
from oarlock.run.run_events import Event


def score(
    run: RunFolder, step: int | None, everything: bool, output: int, notify: Callable[[str], None]
) -> list[Event]:
    """Return the scores; while no agent has the run, its next evaluator finds them too."""
    spec, folder = _brought(run, step, notify)
    try:
        chosen = asked_checkpoints.choose(run.name, folder, step, everything)
        scores = score_once.score(spec, chosen, output, neighbors=sum(spec.sizes.values()))
    except ScoreError as error:
        problem = OarlockError(str(error))
        problem.exit_code = error.code
        raise problem from None
    if traits_of(run).files_are_here and not run.is_held():
        for one in scores:
            if "generation" in one:
                score_file.add(folder, name_of(one["step"], one["generation"]), metrics_of(one))
    return scores


def _brought(run: RunFolder, step: int | None, notify: Callable[[str], None]) -> tuple[Spec, Path]:
    """What to run on this machine, and the folder with the checkpoints, which is here afterwards."""
    if traits_of(run).files_are_here:
        folder = run.folder("checkpoints")
        if "://" in folder:
            raise OarlockError(f"{run.name} writes its checkpoints to {folder} itself")
        return run.spec(), Path(folder)
    if run.sent_from is None:
        raise OarlockError(
            f"{run.name} was sent from another machine, and its program is there: evaluate it there, "
            f"or where it ran, with --on {run.engine}"
        )
    spec = local_spec.spec_for(
        specs.job_of(run.job_file.read_text(), str(run.job_file)), run.sent_from, run.path
    )
    if missing_data.is_missing(spec):
        raise OarlockError(
            f"the data of {run.name} is not on this machine; `oarlock evaluate --on {run.engine} {run.name}` "
            "scores where it is, `oarlock ingest` prepares it here"
        )
    notify(f"copying checkpoints of {run.name}")
    if spec.snapshots:
        pulled = pull_snapshots.bring(
            run.spec(), ["checkpoints"], step, run.path, _quiet, replaces=True, is_ours=True
        )
    else:
        pulled = engine_of(run).pull(run, "checkpoints", run.path, _quiet, replaces=True)
    if "checkpoints" not in pulled.folders:
        raise OarlockError(f"{run.name} has no checkpoints yet")
    return spec, run.path / "checkpoints"


def _quiet(count: int, total: int) -> None:
    """Show nothing: stderr is the program's."""
