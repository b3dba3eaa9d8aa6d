"""Make `jax.distributed.initialize()` work without arguments, and notice a dead peer in seconds.

JAX reads only the coordinator's address from variables, so Oarlock registers its own cluster environment,
first in JAX's list. The heartbeat timeout of 100 s becomes 3 s unless the program sets one: with the default,
the survivor of a killed peer ended after 98 s. In a run on one machine, JAX's coordinator and CPU collectives
listen on loopback. All of this is private API of JAX (as of 0.10), so a version that differs is left
alone.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from oarlock.training.frameworks import loopback
from oarlock.training.frameworks.import_hooks import when_imported

_HEARTBEAT = 3
_DEFAULT_HEARTBEAT = 100
_BIND = "coordinator_bind_address"


def install() -> None:
    """Register what to do when the program imports JAX. Imports nothing."""
    if "OARLOCK_RANK" in os.environ:
        when_imported("jax._src.distributed", _prepare_initialize)
        if loopback.is_local():
            when_imported("jax._src.xla_bridge", _bind_collectives)
        when_imported("jax._src.clusters", _register)


def is_connected() -> bool:
    """Whether the program has called `jax.distributed.initialize()`."""
    distributed = sys.modules.get("jax._src.distributed")
    return distributed is not None and distributed.global_state.client is not None


def _register(clusters: ModuleType) -> None:
    known: list[type] = clusters.ClusterEnv._cluster_types
    if any(cluster.__name__ == "OarlockCluster" for cluster in known):
        return

    class OarlockCluster(clusters.ClusterEnv):  # type: ignore[name-defined, misc]
        name = "oarlock"

        @classmethod
        def is_env_present(cls) -> bool:
            return "OARLOCK_RANK" in os.environ

        @classmethod
        def get_coordinator_address(cls, timeout_secs: int | None = None, *_: Any, **__: Any) -> str:
            return os.environ["OARLOCK_LEADER"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["OARLOCK_WORLD"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["OARLOCK_RANK"])

    known.remove(OarlockCluster)  # subclassing appended it, and JAX uses the first that applies
    known.insert(0, OarlockCluster)


def _prepare_initialize(distributed: ModuleType) -> None:
    original = distributed.State.initialize
    if getattr(original, "_by_oarlock", False):
        return

    names = original.__code__.co_varnames[1 : original.__code__.co_argcount]

    def initialize(self: Any, *args: Any, **options: Any) -> Any:
        given = {**dict(zip(names, args)), **options}
        if given.get("heartbeat_timeout_seconds", _DEFAULT_HEARTBEAT) == _DEFAULT_HEARTBEAT:
            given["heartbeat_timeout_seconds"] = _HEARTBEAT
        if _BIND in names and not given.get(_BIND):
            given[_BIND] = _bind_address(given.get("coordinator_address"))
        return original(self, **given)

    initialize._by_oarlock = True  # type: ignore[attr-defined]
    distributed.State.initialize = initialize


def _bind_address(coordinator: str | None) -> str | None:
    """The address where the other ranks expect the coordinator, if it is loopback; None leaves it to JAX."""
    address = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if "JAX_COORDINATOR_BIND_ADDRESS" in os.environ or not loopback.is_local():
        return None
    if not loopback.is_loopback(host):
        return None
    return f"127.0.0.1:{port}" if host == "localhost" else address


def _bind_collectives(bridge: ModuleType) -> None:
    """Make Gloo listen on loopback instead of the address of this machine's name."""
    library: Any = getattr(bridge, "_jax", None)
    original = getattr(library, "make_gloo_tcp_collectives", None)
    if original is None or hasattr(original, "_by_oarlock"):
        return

    @functools.wraps(original)
    def make(*args: Any, **options: Any) -> Any:
        if len(args) < 2 and not {"hostname", "interface"} & set(options):
            options["hostname"] = "127.0.0.1"
        return original(*args, **options)

    make._by_oarlock = True  # type: ignore[attr-defined]
    library.make_gloo_tcp_collectives = make
