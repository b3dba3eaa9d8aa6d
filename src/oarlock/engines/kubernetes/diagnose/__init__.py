"""Why a run does not run, in one line, and one thing to do about it.

    problems_in     the problems that plain Jobs and Pods show; pure
    find_problems   the same, of objects that it reads with a bounded number of calls
    explain         what an error of the API server means

Nothing here changes anything. A pod that is still being created is not a problem. Imports `agent`, `job` and
`quantities`; of `engines`: `api`.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.diagnose.api_errors import explain
from oarlock.engines.kubernetes.diagnose.collect import find_problems
from oarlock.engines.kubernetes.diagnose.problem import Problem
from oarlock.engines.kubernetes.diagnose.rules import problems_in

__all__ = ["Problem", "explain", "find_problems", "problems_in"]
