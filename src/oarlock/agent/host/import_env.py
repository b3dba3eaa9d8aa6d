"""Variables that frameworks read when they are imported, so they are the zygote's. The user's own win.

Cores are shared out: four tasks with four threads each on four cores fight, with one each they
do not. (TensorFlow's inter-op pool is left alone: with a single thread, an operation that blocks
in it would hold up the collectives that it waits for.)
"""

from __future__ import annotations

import os
import sys

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote import compile_cache
from oarlock.system.processors import usable_cores
from oarlock.training.frameworks.loopback import is_loopback

_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors, without TensorFlow's twelve lines of start-up information
# Where these listen for the other tasks; otherwise on the address of this machine's name.
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def import_time(spec: Spec, tasks: int) -> dict[str, str]:
    """The variables for the zygote of that many tasks, without those that the user has set."""
    share = str(max(1, usable_cores() // max(1, tasks)))
    wanted = {**dict.fromkeys(_POOLS, share), **_QUIET, **compile_cache.variables(spec)}
    if is_loopback(spec.bind):
        wanted.update(dict.fromkeys(_INTERFACES, _LOOPBACK))
    return {name: value for name, value in wanted.items() if name not in os.environ and name not in spec.env}
