"""`python -m oarlock.agent RUN_FOLDER`: take up the run whose record is there."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from pathlib import Path

from oarlock import events
from oarlock.agent import processes
from oarlock.agent.record import Record
from oarlock.agent.spec import Spec
from oarlock.agent.supervisor import Supervisor


def main() -> int:
    folder = Path(sys.argv[1])
    spec = Spec.from_json((folder / "agent.json").read_text())
    lines = (folder / "events.jsonl").read_text(errors="replace").splitlines()
    state = events.fold(spec.run, filter(None, map(events.decode, lines)))
    record = Record(folder, state)
    for place in spec.folders.values():
        if "://" not in place:
            Path(place).mkdir(parents=True, exist_ok=True)
    processes.adopt_orphans()
    record.emit("agent", pid=os.getpid(), host=socket.gethostname())
    try:
        return Supervisor(spec, record).run()
    except BaseException as error:
        traceback.print_exc()
        record.end("failed", 1, reason=f"the agent failed: {type(error).__name__}: {error}; see agent.log")
        processes.end_orphans()
        return 1


if __name__ == "__main__":
    sys.exit(main())
