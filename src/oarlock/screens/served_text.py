"""A model server in words: where it is, what it serves, how it is doing."""

from __future__ import annotations

from oarlock.records.run_folder import RunFolder
from oarlock.run.run_state import RunState
from oarlock.screens.units import number, plural
from oarlock.serving.fleet import announcement


def lines(run: RunFolder, state: RunState) -> list[str]:
    """Return what is known of a model server; nothing for any other run, or before it answers."""
    leader = state.leader
    if not run.serving_file.exists() or leader is None or "version" not in leader.metrics:
        return []
    known = leader.metrics
    told = announcement.read(announcement.path_for(run.serving_file))
    name = f"{told.name}, " if told is not None else ""
    replicas = known.get("replicas", 0)
    what = f"{name}version {known['version']} ({known.get('form', '')})"
    facts = [plural(leader.step or 0, "request"), f"{number(known.get('requests_per_s', 0))}/s"]
    facts += [f"p99 {number(known['p99_ms'])} ms"] if "p99_ms" in known else []
    facts += [f"{number(known.get('queue', 0))} waiting"]
    where = [told.url] if told is not None and state.state == "running" else []
    return [*where, f"{what}, {plural(int(replicas), 'replica')}", ", ".join(facts)]
