"""Sockets of a run whose tasks are all on this machine: on loopback, not on every interface.

torch binds the store of rank 0 to every interface, whatever address it is given. It takes a socket that is
bound already, so we bind one where the others will look for it. All of it is for tasks of a run on loopback:
elsewhere, and where a program names another address, nothing changes.
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
    if is_local():
        when_imported("torch.distributed", _bind_stores)


def is_local() -> bool:
    """Whether every task of this run is on this machine."""
    return is_loopback(os.environ.get("OARLOCK_LEADER", "").rpartition(":")[0])


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")


def _bind_stores(distributed: ModuleType) -> None:
    """On the class itself: `init_process_group` and the programs that make a store find it by many names."""
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
        except NotImplementedError:  # up to 2.5 only the older of its two servers takes a socket
            original(self, **{**given, "use_libuv": False})

    prepare._by_oarlock = True  # type: ignore[attr-defined]
    store.__init__ = prepare


def _listener(given: dict[str, Any]) -> socket.socket | None:
    """A bound socket for the store, if it is one that listens, and on loopback.

    None where the port is taken, too: it may be torch's own store of this process, which it shares; if not,
    torch says what is wrong.
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
