"""The JSON of a run that every verb prints with --json: its state, its time and its folders."""

from __future__ import annotations

import time
from typing import Any

from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import RunState


def of_run(run: RunFolder, state: RunState) -> dict[str, Any]:
    """Return the JSON of a run."""
    data = state.to_data()
    del data["accounts"]  # only the raw counters; `time` has the result
    return {**data, "time": spent(state), "folders": folders(run), "gpus": gpus(run)}


def spent(state: RunState) -> dict[str, float | None]:
    """Return where its time went: until now while it runs, until the last event if it is lost."""
    is_running = not state.is_final and state.state != "lost"
    return state.accounts.in_seconds(time.time() if is_running else None)


def folders(run: RunFolder) -> dict[str, str]:
    """Return the paths of `record`, `program`, `data`, `checkpoints`, `model` and `logs`."""
    try:
        spec = run.spec()
        return {"record": str(run.path), "program": spec.cwd, **spec.folders}
    except (OSError, OarlockError):
        return {"record": str(run.path)}


def gpus(run: RunFolder) -> dict[str, list[str]]:
    """Return the GPUs of each task; a task without an entry sees all that its machine has."""
    try:
        return run.spec().gpus.tasks
    except (OSError, OarlockError):
        return {}
