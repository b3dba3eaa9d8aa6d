"""`oarlock run --serve`: serve what was trained, if its score is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oarlock.cli.serving_session import model_source, serve_options, until_ready
from oarlock.engines.engine import Engine
from oarlock.job.model import Serve
from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import versions
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import complain, hint, say

NOT_GOOD_ENOUGH = 4  # exit code: the model was trained, but is not served


def serve(engine: Engine, run: RunFolder, *, as_json: bool) -> int:
    """Serve the model of a run that has succeeded. Returns the exit code."""
    source = model_source.of_run(run, engine)
    condition = (source.job.serve or Serve()).condition
    why = condition.refusal(scores(run, source.place)) if condition is not None else None
    if why is not None:
        complain(f"{run.name} is not served: serve.when asks for {condition}, and {why}")
        hint(f"oarlock serve {run.name}")
        return NOT_GOOD_ENOUGH
    if not as_json:
        say(f"serving the model of {run.name}")
    order = serve_options.order(source, engine, {})
    return until_ready.serve(engine, order, None, detach=False, as_json=as_json)


def scores(run: RunFolder, place: str) -> Mapping[str, Any]:
    """What is known about the model: its own scores, the evaluator's, and its training's last report."""
    state = run.state()
    reported = state.leader.metrics if state.leader is not None else {}
    evaluated = {name: score.latest for name, score in state.scores.items()}
    return {**reported, **evaluated, **_exported(place)}


def _exported(place: str) -> Mapping[str, Any]:
    found = versions(Path(place)) if "://" not in place else []
    try:
        return found[-1].manifest().scores if found else {}
    except (BadManifest, OSError):
        return {}
