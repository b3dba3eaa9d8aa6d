"""Cores shared out among the tasks of one machine, through the variables every framework reads.

Four tasks with four threads each on four cores fight; one thread each do not.
"""

from __future__ import annotations

import os

from oarlock.agent.spec import Spec

_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def shared_out(spec: Spec, tasks: int) -> dict[str, str]:
    """Import-time variables for the zygote. Whatever the user set stays."""
    share = str(max(1, cores() // max(1, tasks)))
    return {name: share for name in _POOLS if name not in os.environ and name not in spec.env}


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
