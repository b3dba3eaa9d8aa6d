"""A model server of this machine for `oarlock predict` alone, with one replica for each worker."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oarlock.engines.shared.predictor import Predictor, answers
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import OarlockError
from oarlock.serving.fleet import announcement
from oarlock.serving.fleet.announcement import Announcement
from oarlock.system import processes
from oarlock.system.polling import wait_for

_PATIENCE = 600.0  # seconds to load a model
_ENDING = 30.0


@contextmanager
def predictors(order: ServeOrder, workers: int) -> Iterator[list[Predictor]]:
    """Start a server on a free port of this machine, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="oarlock-predict-") as folder:
        file = Path(folder, "serving.json")
        file.write_text(replace(order.settings, port=0, replicas=workers, follows=False).to_json())
        log = Path(folder, "log")
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **order.job.env, **order.env}
        start = processes.entry("oarlock.engines.local.predict_server")
        words = [sys.executable, "-c", start, str(file), str(os.getpid())]
        with log.open("wb") as output:
            server = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=order.folder, env=env
            )
        try:
            url = _ready(server, file, log).url

            def is_ready() -> bool:
                _require(server, log)
                return answers(url)

            yield [Predictor(url, is_ready)] * workers
        finally:
            server.terminate()
            processes.await_end(server, _ENDING)


def _ready(server: subprocess.Popen[bytes], file: Path, log: Path) -> Announcement:
    def told() -> Announcement | None:
        found = announcement.read(announcement.path_for(file))
        if found is None:
            _require(server, log)
        return found

    found = wait_for(told, "model to load", _PATIENCE)
    assert found is not None
    return found


def _require(server: subprocess.Popen[bytes], log: Path) -> None:
    """Raise OarlockError, with its last words, if the server has ended."""
    if server.poll() is not None:
        said = log.read_text(errors="replace").strip().splitlines()
        raise OarlockError(said[-1] if said else f"the model server ended with code {server.returncode}")
