"""The socket on which all replicas accept: bound once, so that a dying replica loses no connection."""

from __future__ import annotations

import errno
import socket

_BACKLOG = 2048


class CannotListen(Exception):
    """The address cannot be used; says why and what to do."""


class PortTaken(CannotListen):
    """Another process listens there."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises CannotListen."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as problem:
        raise CannotListen(f"{host} is not an address of this machine: {problem}") from None
    found = socket.socket(family, kind, proto)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as problem:
        found.close()
        error = PortTaken if problem.errno == errno.EADDRINUSE else CannotListen
        raise error(_why(problem, host, port)) from None
    return found


def _why(problem: OSError, host: str, port: int) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another process; choose another one with --port"
    if problem.errno == errno.EACCES:
        return f"port {port} is for root alone; choose one from 1024 on with --port"
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine"
    return f"cannot listen on {host}, port {port}: {problem.strerror}"


def reachable(host: str) -> bool:
    """Whether other machines may reach a server that listens there."""
    return not (host in ("localhost", "::1") or host.startswith("127."))


def url(scheme: str, host: str, port: int) -> str:
    """The server's address for clients on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"
