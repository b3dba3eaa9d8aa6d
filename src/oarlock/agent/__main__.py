"""`python -m oarlock.agent RUN_FOLDER`: lead the run whose record is in that folder.

With `--machine N --join HOST:PORT` it hosts machine N's tasks for a leading agent elsewhere; the
leading agent itself is machine 0. It starts the zygote first, and imports the rest of the agent while the
zygote imports the framework. `agent/early.py` starts both before the run is known.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

from oarlock.agent.host import import_env
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.agent.zygote.spare import Spare
from oarlock.system import processes


def main() -> int:
    """Lead the run, or follow its leading agent (`--machine`). Returns the exit code."""
    gc.disable()
    call = _call()
    if call.with_parent:
        processes.die_with_parent()
        if os.getppid() != call.with_parent:
            return 1  # the parent died before the kernel watched it for us
    spec = Spec.from_json((call.folder / "agent.json").read_text())
    processes.raise_limits()
    processes.adopt_orphans()
    return _follow(call, spec) if call.machine else lead(spec)


def lead(spec: Spec, has_input: bool = False, spare: Spare | None = None) -> int:
    """Lead the run, with the spare zygote if there is one. Returns the exit code.

    `has_input`: the leader task reads this process's standard input.
    """
    zygote = _started_zygote(spec, spare)
    from oarlock.agent import leader
    from oarlock.agent.record.run_record import Record
    from oarlock.agent.spec_files import make_folders
    from oarlock.run import run_events
    from oarlock.run.error_text import error_text
    from oarlock.run.run_state import fold
    from oarlock.run.typed import VERSION

    _keep_imports()
    folder = Path(spec.folder)
    lines = (folder / "events.jsonl").read_text(errors="replace").splitlines()
    record = Record(
        folder, fold(spec.run, filter(None, map(run_events.decode, lines))), limit=spec.limits.logs
    )
    # A client that reads this event may signal this process at once. The signal waits for its handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    record.emit("agent", pid=os.getpid(), host=_host(), version=VERSION)
    try:
        make_folders(spec)
        return leader.lead(spec, record, spec.seat(0), has_input=has_input, zygote=zygote)
    except BaseException as error:
        trace = traceback.format_exc()
        record.end(
            "failed", 1, reason=f"the agent failed: {error_text(type(error).__name__, error)}; see agent.log"
        )
        record.complain(trace)  # after the verdict, which frees some space on a full disk
        processes.end_orphans()
        return 1


def _started_zygote(spec: Spec, spare: Spare | None) -> ZygoteProcess | None:
    zygote = ZygoteProcess(spec, spare)
    try:
        zygote.start(import_env.import_time(spec, sum(spec.slots_of(0).values())))
    except OSError:
        return None  # the host starts one, or reports what is wrong
    return zygote


def _keep_imports() -> None:
    """Modules live as long as this process: no collection, nor the last, needs to scan them."""
    gc.freeze()
    gc.enable()


def _host() -> str:
    return os.environ.get("OARLOCK_HOST") or socket.gethostname()


def _follow(call: argparse.Namespace, spec: Spec) -> int:
    from oarlock.agent.follower import Follower
    from oarlock.agent.record.run_record import Record
    from oarlock.agent.spec_files import make_folders
    from oarlock.run.run_state import RunState

    _keep_imports()
    make_folders(spec)
    address = call.join or (Path(spec.folder) / "address").read_text().strip()
    host, port = address.rsplit(":", 1)
    record = Record(Path(spec.folder), RunState(spec.run), limit=spec.limits.logs)
    try:
        seat, bind = spec.seat(call.machine), call.bind or spec.bind
        return Follower(spec, record, seat, (host, int(port)), bind).run().code
    finally:
        processes.end_orphans()


def _call() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="oarlock.agent", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", type=int, default=0)
    parser.add_argument("--join", metavar="HOST:PORT")
    parser.add_argument("--bind", metavar="ADDRESS", help="where this machine's tasks are reached")
    parser.add_argument("--with-parent", type=int, metavar="PID", help="die with whoever started it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
