"""Which servers answer `oarlock predict`: one that runs already, or its own, which load the model for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oarlock.cli.predicting import model_client
from oarlock.cli.predicting.model_client import Access, ModelClient
from oarlock.cli.serving_session import model_source, serve_options
from oarlock.engines.engine import engine_called, engine_of
from oarlock.engines.known_engines import traits_of
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.serving.fleet import announcement
from oarlock.serving.settings import Settings
from oarlock.system.free_ports import free_ports

# Requests that one worker has at a time: the next one arrives while the model computes.
_LANES = 2
# For a server of its own: no other client waits, and a batch may have any size.
_DEADLINE, _QUEUE, _BODY = 300.0, 3600.0, 1 << 30


@dataclass(frozen=True)
class Wanted:
    """Which servers are to answer."""

    target: str | None = None  # a run, a folder, a bucket or a URL; None: what is served, or the newest run
    on: str | None = None  # the engine that loads the model; None: what runs already, or this machine
    workers: int | None = None  # how many processes or pods; None: one, or what runs already
    batch: int = 32  # rows of one request
    token_file: Path | None = None

    @property
    def is_url(self) -> bool:
        """Whether the target is the URL of a server that this command does not start."""
        return self.target is not None and self.target.startswith(("http://", "https://"))


@dataclass(frozen=True)
class ServerLane:
    """A connection to a server."""

    client: ModelClient
    is_ready: Callable[[], bool]

    def renew(self) -> None:
        """See `dispatch.Lane`."""
        self.client.renew()


@contextmanager
def lanes(
    wanted: Wanted, given: Mapping[str, Any], notify: Callable[[str], None]
) -> Iterator[list[ServerLane]]:
    """Have connections to servers of the model inside a `with` block. `given`: options of its own servers."""
    token = _token(wanted.token_file) if wanted.token_file else ""
    with ExitStack() as stack:
        if wanted.is_url:
            url, _, name = str(wanted.target).rstrip("/").partition("/v1/models/")
            yield _to(stack, Access(url, name, token))
            return
        running = _running(wanted.target) if wanted.on is None and wanted.workers is None else None
        if running is not None:
            yield _to(stack, _access(running, token))
            return
        _refuse_remote_server(wanted.target)
        engine = engine_called(wanted.on or "local")
        source = model_source.find(wanted.target, engine)
        order = _own(serve_options.order(source, engine, {"port": free_ports(1)[0], **given}), wanted.batch)
        workers = wanted.workers or 1
        found = stack.enter_context(engine.predictors(order, workers, notify))
        # A single worker on this machine answers an example before the next one is read.
        each = _LANES if workers > 1 or engine.traits.sends_program else 1
        yield [
            ServerLane(_connected(stack, Access(one.url, order.settings.name, is_own=True)), one.is_ready)
            for one in found
            for _ in range(each)
        ]


def _to(stack: ExitStack, access: Access) -> list[ServerLane]:
    return [ServerLane(_connected(stack, access), lambda: True)]


def _connected(stack: ExitStack, access: Access) -> ModelClient:
    return stack.enter_context(model_client.connected(access))


def _own(order: ServeOrder, batch: int) -> ServeOrder:
    """An order that never joins requests: the answers are the same for any number of workers."""
    settings = replace(
        order.settings,
        max_rows=batch,
        deadline=max(_DEADLINE, order.settings.deadline),
        queue=_QUEUE,
        body_limit=max(_BODY, order.settings.body_limit),
        access_log=False,
    )
    return replace(order, settings=settings)


def _running(target: str | None) -> RunFolder | None:
    """The running server of that name, or of the run of that name; None: the newest."""
    for run in runs.all_runs():
        if not run.serving_file.exists() or not traits_of(run).files_are_here or not run.is_running():
            continue
        if target in (None, run.name) or _is_model_of(run, str(target)):
            return run
    return None


def _refuse_remote_server(target: str | None) -> None:
    """Say how to ask a server on a cluster: it answers through a forwarded port."""
    for run in runs.all_runs():
        if run.name == target and run.serving_file.exists() and not traits_of(run).files_are_here:
            announced = announcement.read(announcement.path_for(run.serving_file))
            how = f"run `{announced.forward}`" if announced and announced.forward else "forward its port"
            raise OarlockError(
                f"{run.name} answers on its cluster: {how}, and give its address here: -m http://127.0.0.1:8000"
            )


def _is_model_of(server: RunFolder, name: str) -> bool:
    if "/" in name or name in (".", ".."):
        return False  # a folder or a bucket, not a run
    try:
        return server.folder("model") == RunFolder(server.path.with_name(name)).folder("model")
    except (OarlockError, OSError):
        return False


def _access(run: RunFolder, token: str) -> Access:
    announced = engine_of(run).announced(run)
    if announced is None:
        raise OarlockError(f"{run.name} does not answer yet: `oarlock logs {run.name}` shows why")
    settings = Settings.from_json(run.serving_file.read_text())
    if not token and settings.token_file:
        token = _token(Path(settings.token_file))
    return Access(announced.url, announced.name, token, settings.tls_cert)


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as problem:
        raise OarlockError(f"{path}: {problem.strerror}") from None
