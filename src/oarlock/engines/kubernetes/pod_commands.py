"""Commands in pods, for the user at the keyboard: beside a task, beside a run's files, and TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from oarlock.agent.protocol.pod_paths import CODE, STORE
from oarlock.engines.kubernetes.api import port_forward
from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.pod_terminal import Ends, talk
from oarlock.engines.kubernetes.claims import claim_session, task_pod
from oarlock.engines.kubernetes.claims.claim_pod import Purpose
from oarlock.engines.kubernetes.lifecycle import identity
from oarlock.engines.kubernetes.lifecycle.connect import api_of, explained
from oarlock.engines.shared import task_command, tensorboard_process
from oarlock.engines.shared.command_streams import Streams
from oarlock.engines.shared.standing_board import PORT
from oarlock.engines.shared.tensorboard_process import Board
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder

# Into the run's folder if it exists by now; $0 is the folder, $1 the terminal's name.
_ENTER = f'cd "$0" 2>/dev/null || cd {STORE} || exit; TERM=$1; export TERM; shift; exec "$@"'
_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec /bin/sh")
_MEMORY = ("64Mi", "1Gi")
_BOARD_MEMORY = ("256Mi", "2Gi")


def beside_task(
    run: RunFolder, task: str, words: Sequence[str], streams: Streams, notify: Callable[[str], None]
) -> int:
    """Run a command in the pod of a task; return its exit code."""
    spec = run.spec()
    with explained():
        api = api_of(run)
        pod = task_pod.pod_of(api, identity.of(run), spec, task)
        order = task_command.as_task(run.state(), spec, task, words, f"{CODE}/spec.json", notify)
        order["env"]["TERM"] = _term()
        inside = ["python3", "-I", "-c", task_command.script(), json.dumps(order)]
        return _talk(api, pod, inside, streams)


def beside_files(
    run: RunFolder,
    words: Sequence[str],
    streams: Streams,
    *,
    image: str | None,
    writes: bool,
    notify: Callable[[str], None],
) -> int:
    """Run a command, or a shell, in a pod that mounts the run's claim; return its exit code."""
    purpose = Purpose("inspect", claim_session.IDLE, is_writable=writes, image=image, memory=_MEMORY)
    inside = ["/bin/sh", "-c", _ENTER, run.spec().folder, _term(), *(words or _SHELL)]
    with explained():
        api = api_of(run)
        with claim_session.beside(api, run, purpose) as pod:
            access = "writable: your changes are permanent" if writes else "read-only"
            notify(f"in a pod with the claim of {run.name}, {access}")
            return _talk(api, pod, inside, streams)


@contextmanager
def board(run: RunFolder, port: int | None, image: str | None) -> Iterator[Board]:
    """Run TensorBoard in a pod that mounts the run's claim, behind a port of this machine."""
    words = tensorboard_process.words("python3", run.folder("logs"), PORT)
    purpose = Purpose("tensorboard", tuple(words), image=image, memory=_BOARD_MEMORY)
    with explained(), tensorboard_process.listener(port) as here:
        api = api_of(run)
        try:
            with (
                claim_session.beside(api, run, purpose) as pod,
                port_forward.forwarded(api, pod, PORT, here),
            ):
                yield Board(int(here.getsockname()[1]), lambda: claim_session.require(api, pod))
        except OarlockError as problem:
            if "No module named 'tensorboard'" not in str(problem):
                raise
            raise OarlockError(
                "its image has no TensorBoard; --image names one that has, such as tensorflow/tensorflow"
            ) from None


def _talk(api: Api, pod: str, words: Sequence[str], streams: Streams) -> int:
    return talk(api, pod, words, Ends(streams.stdin, streams.stdout, streams.stderr, streams.is_terminal))


def _term() -> str:
    return os.environ.get("TERM") or "dumb"
