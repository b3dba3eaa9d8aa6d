"""An agent that a client starts before it knows the run: `early FD`, a socket to the client.

While the client reads the job, this process and its zygote import what they need to start a run. Then it gets
the run's folder, with the log, the record's lock and perhaps an input for the leader task.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from pathlib import Path

from oarlock.agent.zygote.spare import Spare
from oarlock.system import fd_frames, processes
from oarlock.system.processors import usable_cores

_BUSY = 2  # cores that the client and the zygote need meanwhile


def main() -> int:
    """Wait for the run and lead it. Returns the exit code; 0 if the client has ended without a run."""
    gc.disable()
    processes.raise_limits()
    processes.adopt_orphans()
    spare = _spare()
    from oarlock.agent.__main__ import lead  # beside the zygote's own imports
    from oarlock.agent.protocol.spec import Spec
    from oarlock.agent.task_side import process_title

    if usable_cores() > _BUSY:
        from oarlock.agent import leader  # noqa: F401 - which `lead` imports otherwise, beside a framework

    with socket.socket(fileno=int(sys.argv[1])) as client:
        run, fds = fd_frames.receive(client)
    if run is None:
        if spare is not None:
            spare.discard()
        return 0
    log, _, *stdin = fds  # the lock stays open for as long as this process lives
    processes.redirect(log, log)
    for fd in stdin:
        os.dup2(fd, 0)
        os.close(fd)
    folder = Path(run["folder"])
    process_title.show_agent(folder)
    return lead(Spec.from_json((folder / "agent.json").read_text()), bool(stdin), spare)


def _spare() -> Spare | None:
    try:
        return Spare()
    except OSError:
        return None  # the host starts one later, or reports what is wrong
