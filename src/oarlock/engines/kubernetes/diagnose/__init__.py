"""Why a run does not run, in one line, and one thing to do about it.

    judge     over plain objects, pure: what is wrong with these Jobs and Pods?
    look      asks the cluster with a bounded number of calls, then judges
    explain   what an answer of the API server's itself means

Nothing here changes anything. Young is not wrong: a pod that is merely being created is no problem.
"""

from __future__ import annotations

from oarlock.engines.kubernetes.diagnose.api_errors import explain
from oarlock.engines.kubernetes.diagnose.collect import find_problems
from oarlock.engines.kubernetes.diagnose.problem import Problem
from oarlock.engines.kubernetes.diagnose.rules import problems_in

__all__ = ["Problem", "explain", "find_problems", "problems_in"]
