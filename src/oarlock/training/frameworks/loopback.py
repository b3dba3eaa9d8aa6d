"""Keep torch's store on loopback in a run whose tasks are all on this machine.

torch binds rank 0's store to every interface, no matter what address it gets. But it accepts a socket that
is already bound, so Oarlock binds one where the other ranks expect it. In other runs, and if a program uses
another address, nothing changes.
"""

from __future__ import annotations

import functools
import os
import socket
from types import ModuleType
from typing import Any

from oarlock.training.frameworks.import_hooks import when_imported

_ARGUMENTS = (
    *("host_name", "port", "world_size", "is_master", "timeout"),
    *("wait_for_workers", "multi_tenant", "master_listen_fd", "use_libuv"),
)


def install() -> None:
    """Register what to do when the program imports torch. Imports nothing."""
    if is_local():
        when_imported("torch.distributed", _bind_stores)


def is_local() -> bool:
    """Whether every task of this run is on this machine."""
    return is_loopback(os.environ.get("OARLOCK_LEADER", "").rpartition(":")[0])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")


def _bind_stores(distributed: ModuleType) -> None:
    """Patch the class itself: `init_process_group` and programs refer to it by many names."""
    store = getattr(distributed, "TCPStore", None)
    original = getattr(store, "__init__", None)
    if store is None or original is None or hasattr(original, "_by_oarlock"):
        return

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **options: Any) -> None:
        given = {**dict(zip(_ARGUMENTS, args)), **options}
        listener = _listener(given)
        if listener is None:
            original(self, *args, **options)
            return
        given.update(port=listener.getsockname()[1], master_listen_fd=listener.detach())
        try:
            original(self, **given)
        except NotImplementedError:  # up to 2.5, only the older of its two servers accepts a socket
            original(self, **{**given, "use_libuv": False})

    prepare._by_oarlock = True  # type: ignore[attr-defined]
    store.__init__ = prepare


def _listener(given: dict[str, Any]) -> socket.socket | None:
    """A bound socket for a store that listens on loopback; None for any other.

    Also None if the port is taken: it may be torch's own store in this process, which torch shares; if
    not, torch reports the error.
    """
    if not given.get("is_master") or given.get("master_listen_fd") is not None:
        return None
    try:
        host = str(given["host_name"])
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = socket.getaddrinfo(host, given["port"], family, socket.SOCK_STREAM)[0][4]
        return socket.create_server(address[:2], family=family) if is_loopback(str(address[0])) else None
    except (KeyError, OSError):
        return None
