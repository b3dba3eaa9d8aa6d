"""A task that is not a plain fork of the zygote: a new interpreter, or the user's command."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import NoReturn

from oarlock.agent.zygote import runner
from oarlock.agent.zygote.orders import ORDERS, Launch
from oarlock.system import processes


def spawn(launch: Launch, output: int, events: int, stdin: int | None = None) -> NoReturn:
    """Turn this fork into a new interpreter, or into the user's command."""
    runner.settle(launch, output, stdin)
    os.set_inheritable(events, True)
    program = launch.program
    if program.kind == "command":
        runner.adopt_environment(launch, events)
        words = [*program.target, *program.args]
        try:
            os.execvp(words[0], words)
        except OSError as error:
            print(f"oarlock: cannot start {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    with tempfile.TemporaryFile() as file:  # unlike arguments and pipes it has no size limit
        file.write(json.dumps(ORDERS.to_data(launch)).encode())
        file.flush()
        os.set_inheritable(file.fileno(), True)
        start = processes.entry("oarlock.agent.zygote.runner")
        os.execv(sys.executable, [sys.executable, "-u", "-c", start, str(file.fileno()), str(events)])
