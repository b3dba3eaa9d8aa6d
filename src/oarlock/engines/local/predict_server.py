"""The model server of one `oarlock predict`, which ends with it: `predict_server SETTINGS.json PID`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from oarlock.serving.__main__ import main as serve
from oarlock.system import processes


def main() -> int:
    """Serve until SIGTERM, or until the client is gone. One that was killed has left its folder."""
    client = int(sys.argv.pop())
    processes.die_with_parent(signal.SIGTERM)
    try:
        return serve() if os.getppid() == client else 0
    finally:
        if os.getppid() != client:
            shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
