"""TensorBoard: how it is called, and how one knows that it answers."""

from __future__ import annotations

import http.client
import socket

from oarlock.errors import OarlockError

MODULE = "tensorboard.main"
PORT = 6006  # its own default


def words(python: str, folder: str, port: int) -> list[str]:
    """Only for this machine (or this pod): it asks nobody for a password."""
    return [python, "-m", MODULE, "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)]


def listener(port: int | None) -> socket.socket:
    """A port of this machine: the one that is asked for, else its usual one, else any."""
    for one in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server(("127.0.0.1", one))
        except OSError:
            continue
    raise OarlockError(f"port {port} of this machine is taken: choose another --port")


def answers(port: int) -> bool:
    """Whether somebody speaks HTTP there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
