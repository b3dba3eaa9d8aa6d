"""Which server answers `oarlock predict`: one that runs, or one of its own that loads the model for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oarlock.cli.predicting.model_client import Access
from oarlock.cli.serving_session import model_source, serve_options
from oarlock.engines.engine import Engine, engine_called, engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.serving.fleet import announcement
from oarlock.serving.fleet.announcement import Announcement
from oarlock.serving.settings import Settings
from oarlock.system import processes
from oarlock.system.free_ports import free_ports
from oarlock.system.polling import wait_for

_PATIENCE = 600.0  # seconds to load a model
_ENDING = 30.0


@contextmanager
def access_to(target: str | None, token_file: Path | None) -> Iterator[Access]:
    """Have a server of the model inside a `with` block: a URL's, a run's or one of its own."""
    token = _token(token_file) if token_file else ""
    if target is not None and target.startswith(("http://", "https://")):
        url, _, name = target.rstrip("/").partition("/v1/models/")
        yield Access(url, name, token)
        return
    running = _running(target)
    if running is not None:
        yield _access(running, token)
        return
    local = engine_called("local")
    with _own(target, local) as access:
        yield access


def _running(target: str | None) -> RunFolder | None:
    """The server that runs, of that name or of the run of that name; None: the newest."""
    for run in runs.all_runs():
        if not run.serving_file.exists() or not traits_of(run).files_are_here or not run.is_running():
            continue
        if target in (None, run.name) or _is_model_of(run, str(target)):
            return run
    return None


def _is_model_of(server: RunFolder, name: str) -> bool:
    try:
        return server.folder("model") == RunFolder(server.path.with_name(name)).folder("model")
    except (OarlockError, OSError):
        return False


def _access(run: RunFolder, token: str) -> Access:
    told = engine_of(run).announced(run)
    if told is None:
        raise OarlockError(f"{run.name} does not answer yet: `oarlock logs {run.name}` shows why")
    settings = Settings.from_json(run.serving_file.read_text())
    if not token and settings.token_file:
        token = _token(Path(settings.token_file))
    return Access(told.url, told.name, token, settings.tls_cert)


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as problem:
        raise OarlockError(f"{path}: {problem.strerror}") from None


@contextmanager
def _own(target: str | None, engine: Engine) -> Iterator[Access]:
    """Start a server on a free port of this machine, which ends with the block."""
    source = model_source.find(target, engine)
    order = serve_options.order(source, engine, {"port": free_ports(1)[0]})
    with tempfile.TemporaryDirectory(prefix="oarlock-predict-") as folder:
        file = Path(folder, "serving.json")
        file.write_text(replace(order.settings, port=0, replicas=1).to_json())
        log = Path(folder, "log")
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **order.job.env, **order.env}
        words = [sys.executable, "-c", processes.entry("oarlock.serving.__main__"), str(file)]
        with log.open("wb") as output:
            server = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=source.folder, env=env
            )
        try:
            told = _ready(server, file, log)
            yield Access(told.url, told.name)
        finally:
            _end(server)


def _ready(server: subprocess.Popen[bytes], file: Path, log: Path) -> Announcement:
    found: list[Announcement] = []

    def answers() -> bool:
        has_ended = server.poll() is not None
        told = announcement.read(announcement.path_for(file))
        found.extend([] if told is None else [told])
        return bool(found) or has_ended

    wait_for(answers, "model to load", _PATIENCE)
    if not found:
        said = log.read_text(errors="replace").strip().splitlines()
        raise OarlockError(said[-1] if said else f"the model server ended with code {server.returncode}")
    return found[0]


def _end(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(_ENDING)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
