"""The run that a verb looks at, with its record brought up to date where it runs on a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.screens.output import complain, say


def find(name: str | None, *, with_logs: bool = False) -> runs.RunFolder:
    """By its name, the latest without one. A cluster that does not answer is said, and no more."""
    try:
        run = runs.find(name)
    except UnknownRun:
        run = _sent_from_elsewhere(name)
    later = run.later()
    if later:
        complain(f"{later}; it is shown as far as this one can")
    else:
        _refresh(run, with_logs)
    return run


def refresh_all() -> None:
    """And say which runs there are that were sent from elsewhere."""
    for run in runs.all_runs():
        try:
            _refresh(run)
        except UnknownRun as gone:
            complain(str(gone))
    known = runs.all_runs()
    if _has_kubeconfig():
        from oarlock.engines.kubernetes import kubernetes_engine

        try:
            others = kubernetes_engine.others([run.name for run in known])
        except OarlockError:
            return  # said already, or no cluster at all
        if others:
            some = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
            say(f"sent from elsewhere: {some}; `oarlock attach NAME` watches one", err=True)


def _sent_from_elsewhere(name: str | None) -> runs.RunFolder:
    """By somebody else, or from another machine: its record is made here."""
    if name is not None and _has_kubeconfig():
        from oarlock.engines.kubernetes import kubernetes_engine

        found = kubernetes_engine.adopt(name)
        if found is not None:
            return found
    return runs.find(name)  # and its error


def _has_kubeconfig() -> bool:
    return "KUBECONFIG" in os.environ or Path("~/.kube/config").expanduser().exists()


def _refresh(run: runs.RunFolder, with_logs: bool = False) -> None:
    if not run.is_remote or run.state().is_over:
        return
    from oarlock.engines.kubernetes import kubernetes_engine

    try:
        kubernetes_engine.refresh(run, with_logs=with_logs)
    except UnknownRun:
        raise  # half sent by a client that died, and removed
    except OarlockError as problem:
        complain(str(problem))
        complain(f"{run.name} is shown as it was last seen")
