"""Variables that frameworks read at import, so the zygote has to have them. The user's own values win.

Tasks share the cores: four tasks with four threads each on four cores compete, with one thread each they do
not. (TensorFlow's inter-op pool keeps its size: with a single thread, an operation that blocks in it would
hold up the collectives that it waits for.)
"""

from __future__ import annotations

import os
import sys

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote import compile_cache
from oarlock.system.processors import usable_cores
from oarlock.training.frameworks.loopback import is_loopback

_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors only, without TensorFlow's twelve lines at startup
# The interfaces on which these listen for other tasks. The default is the address of this machine's name.
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def import_time(spec: Spec, tasks: int) -> dict[str, str]:
    """The variables for a zygote of that many tasks, except those that the user has set."""
    return {name: value for name, value in defaults(spec, tasks).items() if name not in os.environ}


def defaults(spec: Spec, tasks: int) -> dict[str, str]:
    """The same where the user has set none."""
    return elsewhere(spec, str(max(1, usable_cores() // max(1, tasks))))


def elsewhere(spec: Spec, share: str) -> dict[str, str]:
    """The same on a machine whose own variables are unknown. `share`: of its cores, for each task."""
    wanted = {**dict.fromkeys(_POOLS, share), **_QUIET, **compile_cache.variables(spec)}
    if is_loopback(spec.bind):
        wanted.update(dict.fromkeys(_INTERFACES, _LOOPBACK))
    return {name: value for name, value in wanted.items() if name not in spec.env}
