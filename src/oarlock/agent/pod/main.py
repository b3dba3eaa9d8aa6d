"""The agent as a pod's first process: unpack the program, install what it needs, lead or follow.

    /oarlock/code     what the client sent: agent.zip, program.tar.gz in parts, spec.json      (read-only)
    /oarlock/secret   the run's token
    /oarlock/work     this pod's own: the agent, packages, HOME
    /oarlock/store    the leader's claim (in other pods a folder of the pod, unless the claim is shared):
                      data/, and runs/<run>/ with the record, checkpoints and the program's folder

The process exits with 0 only when the run is over, so that its index is complete. If it has to leave before
that, it exits with 143, and Kubernetes starts another pod in its place.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.agent.follower import Follower
from oarlock.agent.leader import lead
from oarlock.agent.net.link import Link
from oarlock.agent.net.loop import Loop
from oarlock.agent.pod.unpack_program import unpack
from oarlock.agent.protocol import pod_paths
from oarlock.agent.protocol.messages import Hello
from oarlock.agent.protocol.spec import Seat, Spec
from oarlock.agent.protocol.wishes import Order, Over, Wish
from oarlock.agent.record.leadership import Leadership
from oarlock.agent.record.pod_output import Echo
from oarlock.agent.record.run_record import Record
from oarlock.agent.spec_files import make_folders, read_token
from oarlock.run import run_events
from oarlock.run.cluster import form
from oarlock.run.contract import PREEMPTED
from oarlock.run.error_text import error_text
from oarlock.run.run_state import RunState, fold
from oarlock.run.typed import VERSION
from oarlock.system import processes
from oarlock.system.pods import pip_install

CODE = Path(pod_paths.CODE)
WORK = Path(pod_paths.WORK)
_LAST_WORDS = Path("/dev/termination-log")
_LAST_WORDS_LIMIT = 4000  # bytes; Kubernetes keeps 4,096


def main() -> int:
    """Return the exit code of the pod's container."""
    spec = Spec.from_json((CODE / "spec.json").read_text())
    spec = replace(spec, bind=os.environ.pop("OARLOCK_POD_IP"))
    role = os.environ.pop("OARLOCK_SEAT_ROLE")
    index = int(os.environ.pop(pod_paths.SEAT_OFFSET, "0")) + int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    address = os.environ.pop("OARLOCK_COORDINATOR", "")
    print(
        f"oarlock: {role}-{index} of run {spec.run}; lines with ::oarlock are for `oarlock attach`",
        flush=True,
    )
    processes.raise_limits()
    processes.adopt_orphans()
    try:
        if not address:
            _claim_folder(spec)
        make_folders(spec)
        make_home()
        unpack(spec, CODE)
    except OSError as problem:
        return _fail(f"{problem.filename or 'a file'} cannot be written: {problem.strerror}")
    return _guarded(
        lambda: _follow(spec, role, index, address) if address else _lead(spec, role, index),
    )


def _guarded(live: Callable[[], int]) -> int:
    """Report an agent that fails, and exit with an error: the pod that replaces it continues the run."""
    try:
        return live()
    except Exception as error:
        traceback.print_exc()
        return _fail(f"the agent failed: {error_text(type(error).__name__, error)}")


def _lead(spec: Spec, role: str, index: int) -> int:
    folder = Path(spec.folder)
    leadership = Leadership(folder, WORK)
    if not leadership.take(spec.limits.grace):
        return _stand_aside(leadership)
    is_resumed = _take_resumption(folder, spec.resumed)
    past = _past(folder / "events.jsonl")
    echo = Echo(leads=True)
    record = Record(folder, fold(spec.run, past), echo, spec.limits.logs)
    echo.replay(past)
    if not past:
        tasks = [task.name for task in form(spec.sizes)]
        record.emit("run", job=spec.job, engine="kubernetes", tasks=tasks, version=VERSION)
    is_over = record.state.is_final and not is_resumed
    if not is_over:
        host = os.environ.get("HOSTNAME") or socket.gethostname()
        record.emit("agent", pid=os.getpid(), host=host, version=VERSION)
    failed = None if is_over else install_packages(spec, role)
    code = lead(spec, record, spec.seat_of(role, index), failed, leadership)
    if leadership.is_over:
        return _stand_aside(leadership)
    if not record.state.is_final:
        return code
    _write_last_words(_verdict(record.state))
    return 0


def _stand_aside(leadership: Leadership) -> int:
    """Wait for the end: another pod leads. If this process exited, its node would restart it."""
    print("oarlock: another pod leads this run now", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(PREEMPTED))
    while not leadership.is_dismissed:
        time.sleep(60)
    return PREEMPTED


def _follow(spec: Spec, role: str, index: int, address: str) -> int:
    host, port = address.rsplit(":", 1)
    seat = spec.seat_of(role, index)
    failed = install_packages(spec, role)
    if failed is not None:
        return _give_notice(spec, seat, (host, int(port)), failed)
    record = Record(Path(spec.folder), RunState(spec.run), Echo(leads=False))
    departure = Follower(spec, record, seat, (host, int(port)), spec.bind, _machine()).run()
    return 0 if departure.is_over else departure.code


def _machine() -> str:
    """An id of this pod that outlives its container. A pod that comes back with a lost node is refused, and
    must not return under another id."""
    mark = WORK / "machine"
    if not mark.exists():
        mark.write_text(secrets.token_hex(8))
    return mark.read_text()


def _give_notice(spec: Spec, seat: Seat, leader: tuple[str, int], why: str) -> int:
    """Notify the leading agent that this pod cannot run anything, so that it ends the run. A pod that only
    exited with an error would restart and fail forever."""
    _fail(why)
    loop = Loop()
    codes: list[int] = []

    def on_joined() -> None:
        text = f"{seat.name}: {why}"
        link.send({"events": [{"t": time.time(), "kind": "never_ready", "text": text}]})

    def on_wish(wish: Wish | Order) -> None:
        if isinstance(wish, Over):
            codes.append(PREEMPTED if wish.replaced else 0)

    def leave(*_: Any) -> None:
        codes.append(PREEMPTED)

    hello = Hello(seat.name, uid=secrets.token_hex(8), machine=_machine(), host=spec.bind)
    link = Link(loop, leader, read_token(spec), hello, on_wish, on_joined, leave, leave, _complain)
    loop.on_signals([signal.SIGTERM, signal.SIGINT], leave)
    link.start()
    link.wait_for_leader(spec.limits.rendezvous, leave)
    while not codes:
        loop.turn()
    link.close()
    return codes[0]


def _claim_folder(spec: Spec) -> None:
    """Move aside what a deleted run of the same name left on the claim, which outlives runs."""
    folder = Path(spec.folder)
    mark = folder / "id"
    if folder.exists() and (not mark.exists() or mark.read_text() != spec.id):
        number = 1
        while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
            number += 1
        folder.rename(aside)
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(spec.id)


def _take_resumption(folder: Path, count: int) -> bool:
    """Whether this is the first start since a client resumed a run that had ended or was stopped."""
    mark = folder / "resumed"
    if count <= (int(mark.read_text()) if mark.exists() else 0):
        return False
    (folder / "result.json").unlink(missing_ok=True)
    mark.write_text(str(count))
    return True


def _past(path: Path) -> list[run_events.Event]:
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    return [event for event in map(run_events.decode, lines) if event is not None]


def install_packages(spec: Spec, role: str) -> str | None:
    """Install the packages of a role. Returns None, or why that failed. pip gets the job's `env`."""
    return pip_install.install(spec.pip_of(role), WORK, spec.cwd, spec.env)


def make_home() -> None:
    """Set HOME and USER: a user unknown to the image has neither, and some libraries need both."""
    home = WORK / "home"
    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(HOME=str(home), USER="oarlock", LOGNAME="oarlock")


def _verdict(state: RunState) -> str:
    verdict: dict[str, Any] = {
        "result": state.state,
        "code": state.code,
        "reason": state.reason,
        "ended": state.ended,
    }
    if state.failure is not None:
        verdict["failure"] = {
            key: value[:800] for key, value in vars(state.failure).items() if isinstance(value, str)
        }
    text = json.dumps(verdict)
    return text if len(text) <= _LAST_WORDS_LIMIT else json.dumps({**verdict, "reason": "", "failure": None})


def _complain(text: str) -> None:
    print(f"oarlock: {text}", file=sys.stderr, flush=True)


def _fail(why: str) -> int:
    _complain(why)
    _write_last_words(why)
    return 1


def _write_last_words(text: str) -> None:
    """Write the termination message, where `kubectl describe` and clients find it without the log."""
    try:
        _LAST_WORDS.write_bytes(text.encode()[-_LAST_WORDS_LIMIT:])
    except OSError:
        pass
