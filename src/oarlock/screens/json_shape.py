"""The one shape in which every verb gives a run with --json: RunState, its time and its folders."""

from __future__ import annotations

import time
from typing import Any

from oarlock.errors import OarlockError
from oarlock.records.runs import RunFolder
from oarlock.run.run_state import RunState


def of_run(run: RunFolder, state: RunState) -> dict[str, Any]:
    data = state.to_data()
    del data["accounts"]  # the books themselves; `time` is what they come to
    return {**data, "time": spent(state), "folders": folders(run)}


def spent(state: RunState) -> dict[str, float | None]:
    """Where its time went: up to now while it runs, up to the last sign of it where it is lost."""
    is_running = not state.is_final and state.state != "lost"
    return state.accounts.told(time.time() if is_running else None)


def folders(run: RunFolder) -> dict[str, str]:
    """`record`, `program`, `data`, `checkpoints`, `model` and `logs`, as the agent was told."""
    try:
        spec = run.spec()
        return {"record": str(run.path), "program": spec.cwd, **spec.folders}
    except (OSError, OarlockError):
        return {"record": str(run.path)}
