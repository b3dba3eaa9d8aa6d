"""Run one task of a job without an agent: set its variables, wait for its end, and collect its reports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from oarlock.agent.protocol import messages
from oarlock.agent.protocol.wire import WireError
from oarlock.agent.score.score_error import ScoreError
from oarlock.agent.zygote.orders import ORDERS, Launch
from oarlock.run.run_events import Event
from oarlock.system import processes
from oarlock.system.lines import Lines

_CHUNK = 1 << 16


def run(launch: Launch, imports: Mapping[str, str], output: int) -> tuple[int, list[Event]]:
    """Return the exit code, as a shell shows it, and all reports.

    `imports` are variables for the frameworks; `output` is the descriptor for what the task prints. Raises
    ScoreError if it cannot be started.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = _start(launch, {**os.environ, **imports}, theirs.fileno(), output)
        try:
            reports = _read(ours, launch.task)
            code = process.wait()
        finally:
            process.kill()  # after Ctrl-C no process reads its reports
            process.wait()
    return processes.shell_code(code), reports


def _start(launch: Launch, base: dict[str, str], events: int, output: int) -> subprocess.Popen[bytes]:
    if launch.program.kind == "command":
        words = [*launch.program.target, *launch.program.args]
        return _popen(words, launch.cwd, {**base, **launch.env, "OARLOCK_FD": str(events)}, output, events)
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(ORDERS.to_data(launch)).encode())
        file.flush()
        start = processes.entry("oarlock.agent.zygote.runner")
        words = [sys.executable, "-u", "-c", start, str(file.fileno()), str(events)]
        return _popen(words, launch.cwd, base, output, file.fileno(), events)


def _popen(
    words: Sequence[str], cwd: str, env: dict[str, str], output: int, *fds: int
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words, cwd=cwd, env=env, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    except OSError as problem:
        raise ScoreError(f"cannot start {words[0]}: {problem.strerror}") from None


def _read(line: socket.socket, task: str) -> list[Event]:
    """All reports, until the program ends."""
    lines, found = Lines(), []
    while data := line.recv(_CHUNK):
        for text in lines.feed(data):
            try:
                event = messages.task_event(text, task, time.time())
            except (WireError, ValueError):
                continue  # a program may write anything
            if event["kind"] == "report":
                found.append(event)
    return found
