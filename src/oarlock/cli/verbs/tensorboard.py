"""`oarlock tensorboard`: what a run writes to LOG_DIR, in a browser."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from oarlock.cli.arguments.options import json_option, run_argument
from oarlock.cli.session import known
from oarlock.cli.session.signals import leaving_in_order
from oarlock.engines.shared import tensorboard_process
from oarlock.errors import OarlockError
from oarlock.records import runs
from oarlock.screens.output import print_json_line, say

_PATIENCE = 120.0  # seconds for it to answer
_POLL = 0.2
_LOOK = 2.0  # seconds between two looks whether it is still there
_FAREWELL = 5.0

Look = Callable[[], None]  # raises OarlockError when it is gone


@click.command("tensorboard")
@run_argument
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Of this machine. Default: 6006.")
@click.option("--image", metavar="IMAGE", help="On a cluster: one that has it. Default: the leader's.")
@json_option("its url as JSON, on the first line")
def verb(name: str | None, port: int | None, image: str | None, as_json: bool) -> int:
    """Show what a run has logged in TensorBoard, until Ctrl-C.

    That is all below its LOG_DIR: of a local run on this machine, of a cluster's in a pod beside its claim,
    which goes again, with a port of this machine that leads to it.
    """
    run = known.find(name)
    if image and not run.is_remote:
        raise click.UsageError(f"{run.name} ran on this machine; --image is for a run on a cluster")
    folder = run.folder("logs")
    showing = _on_cluster(run, folder, port, image) if run.is_remote else _here(folder, port)
    with leaving_in_order():
        try:
            with showing as (shown, look):
                _wait(shown, look)
                _tell(run.name, f"http://127.0.0.1:{shown}/", as_json)
                while True:
                    time.sleep(_LOOK)
                    look()
        except KeyboardInterrupt:
            return 0


def _wait(port: int, look: Look) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not tensorboard_process.answers(port):
        look()
        if time.monotonic() > deadline:
            raise OarlockError(f"TensorBoard does not answer after {_PATIENCE:g} s")
        time.sleep(_POLL)


def _tell(name: str, url: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"url": url})
    else:
        say(f"{name}: {url}   Ctrl-C ends it")
    sys.stdout.flush()


@contextmanager
def _here(folder: str, port: int | None) -> Iterator[tuple[int, Look]]:
    if importlib.util.find_spec("tensorboard") is None:
        raise OarlockError(f"TensorBoard is not installed: {sys.executable} -m pip install tensorboard")
    with tensorboard_process.listener(port) as free:
        chosen = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as said:
        words = tensorboard_process.words(sys.executable, folder, chosen)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

        def look() -> None:
            if process.poll() is not None:
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                raise OarlockError(f"TensorBoard has ended (exit code {process.returncode}): {lines[-1]}")

        try:
            yield chosen, look
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _on_cluster(
    run: runs.RunFolder, folder: str, port: int | None, image: str | None
) -> Iterator[tuple[int, Look]]:
    from oarlock.engines.kubernetes import kubernetes_engine
    from oarlock.engines.kubernetes.api import port_forward
    from oarlock.engines.kubernetes.claims import claim_session
    from oarlock.engines.kubernetes.claims.claim_pod import Purpose

    words = tensorboard_process.words("python3", folder, tensorboard_process.PORT)
    purpose = Purpose("tensorboard", tuple(words), image=image, memory=("256Mi", "2Gi"))
    with kubernetes_engine.told(), tensorboard_process.listener(port) as here:
        api = kubernetes_engine.api_of(run)
        try:
            with (
                claim_session.beside(api, run, purpose) as pod,
                port_forward.forwarded(api, pod, tensorboard_process.PORT, here),
            ):
                yield int(here.getsockname()[1]), lambda: claim_session.require(api, pod)
        except OarlockError as problem:
            if "No module named 'tensorboard'" not in str(problem):
                raise
            raise OarlockError(
                "its image has no TensorBoard; --image names one that has, such as tensorflow/tensorflow"
            ) from None
