"""How the supervisor ends a replica. Pure."""

from __future__ import annotations

import signal

STOP = signal.SIGTERM  # the whole server stops
RETIRE = signal.SIGUSR1  # another replica takes over: silent connections have time to come back
