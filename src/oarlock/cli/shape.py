"""The one shape in which every verb gives a run with --json: RunState, and where its folders are."""

from __future__ import annotations

import json
from typing import Any

from oarlock.events import RunState
from oarlock.runs import RunFolder


def of_run(run: RunFolder, state: RunState) -> dict[str, Any]:
    return {**state.to_data(), "folders": folders(run)}


def folders(run: RunFolder) -> dict[str, str]:
    """`record`, `program`, `data`, `checkpoints`, `model` and `logs`, as the agent was told."""
    try:
        told = json.loads((run.path / "agent.json").read_bytes())
        return {"record": str(run.path), "program": told["cwd"], **told["folders"]}
    except (OSError, ValueError, KeyError):
        return {"record": str(run.path)}
