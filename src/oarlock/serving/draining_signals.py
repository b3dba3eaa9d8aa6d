"""How the supervisor stops a replica. Pure."""

from __future__ import annotations

import signal

STOP = signal.SIGTERM  # the whole server stops
RETIRE = signal.SIGUSR1  # another replica takes over: idle connections have time to return
