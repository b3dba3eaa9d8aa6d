"""Explain a failure on this machine by a package that the job's pods install and this machine lacks."""

from __future__ import annotations

import re
import shlex

from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError
from oarlock.program import packages
from oarlock.records.run_folder import RunFolder
from oarlock.run.task_state import Failure
from oarlock.wording import listed, printable

_MODULE = re.compile(r"No module named '([\w.]+)'")


def explain(run: RunFolder, failed: Failure) -> list[str]:
    """Return a line about the packages in the job's `pip:` that bring the missing module; or none."""
    module = _MODULE.match(failed.message or "")
    if module is None or not traits_of(run).files_are_here:
        return []
    try:
        named = run.spec().pip_of(failed.task.rpartition("-")[0])
    except OarlockError:
        return []
    bring = [one for one in named if packages.missing([module[1]], [], [one]) == []]
    if not bring:
        return []
    return [
        f"  pods install {printable(listed(bring, 'and'))}, as the job's pip: says; "
        f"on this machine: pip install {printable(shlex.join(bring))}"
    ]
