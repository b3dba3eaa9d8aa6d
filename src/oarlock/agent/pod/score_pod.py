"""Runs with `exec` in a separate pod with the run's claim: scores its checkpoints, as its evaluator.

    python3 /oarlock/code/agent.zip '{"step": 1000, "everything": false}'

Standard output gets a `report` for each score and, after a failure, an `end` with the reason, as lines of
JSON. What the program prints goes to standard error. Nothing restarts and no agent leads: the client waits.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from oarlock.agent.pod.main import CODE, WORK, install_packages, make_home
from oarlock.agent.pod.unpack_program import unpack
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.score import asked_checkpoints, fetched_snapshots, missing_data, score_once
from oarlock.agent.score.score_error import ScoreError
from oarlock.agent.spec_files import make_folders
from oarlock.checkpoints.store import Checkpoint
from oarlock.run import run_events
from oarlock.system import processes

_ROLE = "evaluator"
_STDERR = 2


def main() -> int:
    """Return the program's exit code if it fails."""
    order = json.loads(sys.argv[-1])
    spec = Spec.from_json((CODE / "spec.json").read_text())
    spec = replace(spec, bind=os.environ.pop("OARLOCK_POD_IP", spec.bind))
    with os.fdopen(os.dup(1), "w", buffering=1) as answer:
        os.dup2(_STDERR, 1)  # pip prints, and so may anything else that runs here
        try:
            for report in _score(spec, order.get("step"), bool(order.get("everything"))):
                print(run_events.encode(report), file=answer)
        except ScoreError as problem:
            end = {"t": time.time(), "kind": "end", "state": "failed", "code": problem.code}
            print(run_events.encode({**end, "reason": str(problem)}), file=answer)
            return problem.code
    return 0


def _score(spec: Spec, step: int | None, everything: bool) -> list[run_events.Event]:
    processes.raise_limits()
    _check_folder(spec)
    is_here = not spec.snapshots or bool(spec.claim)
    chosen = asked_checkpoints.choose(spec.run, _folder(spec), step, everything) if is_here else []
    _unpack(spec)
    failed = install_packages(spec, _ROLE)
    if failed is not None:
        raise ScoreError(failed)
    if not is_here:
        chosen = _fetch(spec, step, everything)
    missing_data.prepare(spec, _STDERR)
    return score_once.score(spec, chosen, _STDERR, neighbors=1)


def _check_folder(spec: Spec) -> None:
    """Check that a later run of the same name has not moved this run's folder aside."""
    mark = Path(spec.folder, "id")
    if mark.exists() and mark.read_text() != spec.id:
        raise ScoreError(f"on the claim, the folder of {spec.run} is that of another run of this name")


def _folder(spec: Spec) -> Path:
    folder = spec.folders["checkpoints"]
    if "://" in folder:
        raise ScoreError(f"{spec.run} writes its checkpoints to {folder} itself")
    return Path(folder)


def _unpack(spec: Spec) -> None:
    """Unpack the program, unless a claim has it, with the files that it wrote next to itself."""
    if not Path(spec.cwd).exists() and not list(CODE.glob("program.tar.gz.*")):
        raise ScoreError(f"the program of {spec.run} is gone from the cluster")
    try:
        make_folders(spec)
        make_home()
        unpack(spec, CODE)
    except OSError as problem:
        raise ScoreError(f"{problem.filename or 'a file'} cannot be written: {problem.strerror}") from None


def _fetch(spec: Spec, step: int | None, everything: bool) -> list[Checkpoint]:
    folder = WORK / "snapshots"
    wanted = "all" if everything else "newest" if step is None else str(step)
    fetched_snapshots.fetch(spec, folder, wanted, lambda text: print(f"oarlock: {text}", flush=True))
    return asked_checkpoints.choose(spec.run, folder, step, everything)
