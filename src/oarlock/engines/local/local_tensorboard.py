"""TensorBoard as a process on this machine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from oarlock.engines.engine import Board
from oarlock.engines.shared import tensorboard_process
from oarlock.errors import OarlockError

_FAREWELL = 5.0  # seconds for it to end after SIGTERM


@contextmanager
def serve(folder: str, port: int | None) -> Iterator[Board]:
    """Run TensorBoard on a folder inside a `with` block. Raises OarlockError if it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise OarlockError(f"TensorBoard is not installed: {sys.executable} -m pip install tensorboard")
    with tensorboard_process.listener(port) as free:
        chosen = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as output:
        words = tensorboard_process.words(sys.executable, folder, chosen)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

        def check() -> None:
            if process.poll() is not None:
                output.seek(0)
                lines = output.read().decode(errors="replace").strip().splitlines() or ["no output"]
                raise OarlockError(f"TensorBoard has ended (exit code {process.returncode}): {lines[-1]}")

        try:
            yield Board(chosen, check)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
