"""TensorBoard: its command line, its port, whether it answers, and the one that runs on this machine."""

from __future__ import annotations

import http.client
import importlib.util
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from oarlock.engines.shared.standing_board import MODULE, PORT
from oarlock.errors import OarlockError
from oarlock.system import processes

_FAREWELL = 5.0  # seconds for it to end after SIGTERM
# `python -m` would search the current folder, which is often the program's: a `logging.py` there breaks it.
_START = (
    f"{processes.BARE_PATH}; import runpy; runpy.run_module({MODULE!r}, run_name='__main__', alter_sys=True)"
)


class Board(NamedTuple):
    """A TensorBoard that is being started."""

    port: int  # on this machine
    check: Callable[[], None]  # raises OarlockError once it is gone


def words(python: str, folder: str, port: int) -> list[str]:
    """Return its command. It listens only on this machine (or pod): it has no passwords."""
    return [python, "-c", _START, "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)]


def is_installed() -> bool:
    """Return whether this Python has it."""
    return importlib.util.find_spec("tensorboard") is not None


@contextmanager
def serving(folder: str, port: int | None) -> Iterator[Board]:
    """Run it on this machine inside a `with` block. Raises OarlockError if it is not installed.

    `folder` is a folder or, with commas, several, each with a name and a colon before it.
    """
    if not is_installed():
        raise OarlockError(f"TensorBoard is not installed: {sys.executable} -m pip install tensorboard")
    with listener(port) as free:
        chosen = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as output:
        command = words(sys.executable, folder, chosen)
        if "," in folder:
            command[command.index("--logdir")] = "--logdir_spec"
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

        def check() -> None:
            if process.poll() is not None:
                output.seek(0)
                lines = output.read().decode(errors="replace").strip().splitlines() or ["no output"]
                raise OarlockError(f"TensorBoard has ended (exit code {process.returncode}): {lines[-1]}")

        try:
            yield Board(chosen, check)
        finally:
            process.terminate()
            processes.await_end(process, _FAREWELL)


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
