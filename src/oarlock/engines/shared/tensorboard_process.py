"""TensorBoard: its command line, its port, and whether it answers."""

from __future__ import annotations

import http.client
import socket

from oarlock.errors import OarlockError

MODULE = "tensorboard.main"
PORT = 6006  # its own default


def words(python: str, folder: str, port: int) -> list[str]:
    """Return its command. It listens only on this machine (or pod): it has no passwords."""
    return [python, "-m", MODULE, "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)]


def listener(port: int | None) -> socket.socket:
    """Listen on a port of this machine: the given one, else 6006, else any. Raises OarlockError."""
    for one in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server(("127.0.0.1", one))
        except OSError:
            continue
    raise OarlockError(f"port {port} of this machine is in use: choose another --port")


def answers(port: int) -> bool:
    """Return whether a server on this machine answers HTTP requests on a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
