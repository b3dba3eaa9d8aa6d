"""Find the run that a verb is about, and bring its record up to date."""

from __future__ import annotations

from oarlock.engines.engine import engine_called, engine_of
from oarlock.engines.known_engines import ENGINES
from oarlock.errors import OarlockError, UnknownRun
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.screens.output import complain, say

_NAMED = 5  # runs started elsewhere that are named


def find(name: str | None, *, with_logs: bool = False) -> RunFolder:
    """Return the run of that name, or the newest run, with its record up to date.

    A run that another machine started gets a record here. A cluster that does not answer is only reported.
    Raises UnknownRun.
    """
    try:
        run = runs.find(name)
    except UnknownRun:
        run = _adopted(name)
    later = run.later()
    if later:
        complain(f"{later}; the rest of its record is shown as far as possible")
    else:
        _refresh(run, with_logs)
    return run


def recorded(name: str | None) -> RunFolder:
    """Return the run of that name, or the newest run, with its record as it is. Raises UnknownRun.

    A cluster is asked only for a run without a record, which gets one.
    """
    try:
        return runs.find(name)
    except UnknownRun:
        return find(name)


def refresh_all() -> None:
    """Bring every record up to date, and name the runs that have none because they were started elsewhere."""
    for run in runs.all_runs():
        try:
            _refresh(run)
        except UnknownRun as gone:
            complain(str(gone))
    others = [name for engine in ENGINES for name in _unrecorded(engine)]
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        named = ", ".join(others[:_NAMED])
        say(f"started from other machines: {named}{more}; `oarlock attach NAME` follows one", err=True)


def _adopted(name: str | None) -> RunFolder:
    """Create a record for a run that another machine started."""
    for engine in ENGINES if name is not None else ():
        run = engine_called(engine).adopt(str(name))
        if run is not None:
            return run
    return runs.find(name)  # raises, with what is known about the name


def _unrecorded(engine: str) -> list[str]:
    try:
        return engine_called(engine).unrecorded()
    except OarlockError:
        return []  # reported already, or there is no cluster


def _refresh(run: RunFolder, with_logs: bool = False) -> None:
    if not run.is_running():
        return
    try:
        engine_of(run).refresh(run, with_logs=with_logs)
    except UnknownRun:
        raise  # a client that died had sent only a part of it: it is removed
    except OarlockError as problem:
        complain(str(problem))
        complain(f"{run.name} is shown as it was last seen")
