"""The options of `oarlock serve`, and how they and the job become an order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from oarlock.cli.arguments.job_options import CLUSTER
from oarlock.cli.serving_session import foreign_job
from oarlock.cli.serving_session.model_source import ModelSource
from oarlock.cli.session import start_run
from oarlock.engines.engine import Engine
from oarlock.engines.shared.serve_order import ServeOrder
from oarlock.errors import JobError, OarlockError
from oarlock.job import runnable
from oarlock.job.job_file import with_sets
from oarlock.job.model import Job, Serve
from oarlock.quantities import Replicas
from oarlock.screens.output import complain
from oarlock.serving.fleet import access_files, listener
from oarlock.serving.settings import MOST_REPLICAS, Settings
from oarlock.system.free_ports import free_ports

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_PORT = 8000
_LOOPBACK = "127.0.0.1"
_SHARE = re.compile(r"\s*([1-9][0-9]*)\s*=\s*([0-9]+(?:\.[0-9]+)?)\s*")

_OPTIONS = (
    click.option(
        "--name",
        help="The run's name. Default: the job's name, -serve and four letters; without these on a cluster.",
    ),
    click.option("--model-name", metavar="NAME", help="The model's name in URLs. Default: the job's name."),
    click.option("--port", type=click.IntRange(1, 65535), help="Default: 8000, or a free one."),
    click.option("--host", help="The address to listen on. Default: 127.0.0.1, this machine alone."),
    click.option("--replicas", metavar="N", help="How many processes, or pods, answer requests."),
    click.option(
        "--version", "which", metavar="newest|best|N", help="The version to serve. Default: newest."
    ),
    click.option("--ab", metavar="N=SHARE,...", help="Share requests among versions: --ab 1=90,2=10."),
    click.option("--token-file", type=click.Path(), help="Require the token in this file."),
    click.option("--tls-cert", type=click.Path(), help="The certificate, for https."),
    click.option("--tls-key", type=click.Path(), help="Its key."),
    click.option("--ingress", metavar="HOST", help="On a cluster: the name by which others reach it."),
    click.option("--gateway", metavar="NAME", help="On a cluster: the Gateway that leads to it."),
    *CLUSTER,
    click.option(
        "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Set any field: --set serve.deadline=5s."
    ),
)


def serve_options(verb: F) -> F:
    """Add the options that say how a model is served."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def order(source: ModelSource, engine: Engine, given: Mapping[str, Any]) -> ServeOrder:
    """Return what the engine is asked for. Raises OarlockError or click.UsageError."""
    start_run.check_options(engine, given)
    sets = [f"kubernetes.{name}={given[name]}" for name in ("namespace", "context") if given.get(name)]
    is_here = not engine.traits.sends_program
    job = _job(source, [*(given.get("sets") or ()), *sets], is_here)
    part = job.serve or Serve()
    if given.get("replicas"):
        part = _with_replicas(part, str(given["replicas"]))
    if is_here and part.replicas.elastic:
        raise JobError(
            f"serve.replicas: a fixed number here, found {part.replicas}; min..max is for clusters"
        )
    return ServeOrder(
        settings=_settings(source, job, part, given, is_here),
        job=job,
        part=part.role,
        run=source.run,
        framework=_framework(source, job),
        pip=part.pip,
        env=part.env,
        host=given.get("ingress") or part.ingress or "",
        gateway=given.get("gateway") or part.gateway or "",
        folder=source.folder,
        is_job_ours=source.is_job_ours,
    )


def _job(source: ModelSource, sets: Sequence[str], is_here: bool) -> Job:
    if source.run is None or source.is_job_ours:
        return with_sets(source.job, sets)
    return foreign_job.settled(source.job, source.run, sets, is_here)


def _framework(source: ModelSource, job: Job) -> str:
    """The model's framework or, where its folder cannot be seen from here, the one that the job names."""
    return source.framework if source.framework != "none" or job.framework == "auto" else job.framework


def _settings(
    source: ModelSource, job: Job, part: Serve, given: Mapping[str, Any], is_here: bool
) -> Settings:
    host = given.get("host") or _LOOPBACK
    cert, key = _file(given, "tls_cert"), _file(given, "tls_key")
    if bool(cert) != bool(key):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    settings = Settings(
        name=given.get("model_name") or job.name,
        source=source.place,
        host=host,
        port=_port(host, given.get("port") or part.port) if is_here else DEFAULT_PORT,
        replicas=min(part.replicas.max, MOST_REPLICAS),
        max_rows=part.batching.max_rows,
        queue=part.batching.queue.seconds,
        deadline=part.deadline.seconds,
        body_limit=part.body_limit.bytes,
        token_file=_file(given, "token_file"),
        tls_cert=cert,
        tls_key=key,
        versions=str(given.get("which") or part.version),
        weights=_weights(given.get("ab")),
        predict=_predict(source, part.predict),
        access_log=part.access_log,
    )
    try:
        Settings.from_json(settings.to_json())
        access_files.check(settings)
    except ValueError as problem:
        raise OarlockError(str(problem)) from None
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", settings.name):
        raise click.UsageError(f"--model-name {settings.name}: letters, digits, '.', '_' and '-' make a name")
    return settings


def _predict(source: ModelSource, written: str | None) -> str:
    """The path of the file with pre- and post-processing, which is read here and may travel. A record names
    only files of the job's folder; a user may name any."""
    if written is None:
        return ""
    if source.job.serve is not None and written == source.job.serve.predict:
        folder = Path(os.path.normpath(source.folder.absolute()))
        return str(folder / runnable.inside(written, folder, ("serve", "predict")))
    return str(source.folder / written)


def _with_replicas(part: Serve, written: str) -> Serve:
    try:
        value = Replicas.parse(int(written) if written.isdecimal() else written)
    except ValueError as problem:
        raise click.UsageError(f"--replicas {written}: {problem}") from None
    return msgspec.structs.replace(part, replicas=value)


def _weights(written: str | None) -> dict[int, float]:
    if written is None:
        return {}
    found: dict[int, float] = {}
    for piece in written.split(","):
        share = _SHARE.fullmatch(piece)
        if share is None or int(share[1]) in found:
            raise click.UsageError(f"--ab {written}: expected versions and shares such as 1=90,2=10")
        found[int(share[1])] = float(share[2])
    return found


def _file(given: Mapping[str, Any], name: str) -> str:
    """The absolute path: the server has another current folder."""
    path = given.get(name)
    if not path:
        return ""
    if not Path(path).is_file():
        raise click.UsageError(f"--{name.replace('_', '-')} {path}: no such file")
    return str(Path(path).absolute())


def _port(host: str, asked: int | None) -> int:
    """The requested port, else the usual one, else a free one, which is printed."""
    try:
        listener.listen(host, asked or DEFAULT_PORT).close()
    except listener.PortTaken as problem:
        if asked is not None:
            raise OarlockError(str(problem)) from None
        found = free_ports(1, host)[0]
        complain(f"port {DEFAULT_PORT} is in use; this server gets port {found}")
        return found
    except listener.CannotListen as problem:
        raise OarlockError(str(problem)) from None
    return asked or DEFAULT_PORT
