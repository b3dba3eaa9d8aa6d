"""Run a job's program once, on this machine, as the evaluator of given checkpoints, and collect its scores.

It gets the variables that an evaluator of the run gets, and as many threads: scores are the same to the last
digit. `State.follow` yields exactly these checkpoints and ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oarlock.agent.host.import_env import import_time
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.wire import WireError
from oarlock.agent.zygote.orders import ORDERS, Launch
from oarlock.checkpoints.store import Checkpoint
from oarlock.errors import OarlockError
from oarlock.run import cluster, contract, placeholders
from oarlock.run.events import Event
from oarlock.system import processes
from oarlock.system.lines import Lines
from oarlock.training.saving.new_checkpoints import ONLY

TASK = "evaluator-0"
_CHUNK = 1 << 16


def score(spec: Spec, checkpoints: Sequence[Checkpoint]) -> list[Event]:
    """Return a report for each checkpoint that the program scored. Its output goes to stderr.

    Raises OarlockError, with the program's exit code, if the program fails.
    """
    if not Path(spec.cwd).is_dir():
        raise OarlockError(f"the program's folder {spec.cwd} is gone")
    with tempfile.TemporaryDirectory(prefix="oarlock-evaluate-") as scratch:
        launch = _launch(spec, checkpoints, Path(scratch))
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = _start(spec, launch, theirs.fileno())
            try:
                events = _read(ours)
                code = process.wait()
            finally:
                process.kill()  # on Ctrl-C: nobody would read what it reports
                process.wait()
    if code != 0:
        code = processes.shell_code(code)
        problem = OarlockError(f"the evaluator ended with exit code {code}: nothing is stored")
        problem.exit_code = code
        raise problem
    return [_placed(event, checkpoints) for event in events if event.get("step") is not None]


def _launch(spec: Spec, checkpoints: Sequence[Checkpoint], scratch: Path) -> Launch:
    tasks = cluster.form({**spec.sizes, "evaluator": 1})
    task = next(task for task in tasks if task.name == TASK)
    newest = max(checkpoints, key=lambda one: (one.step, one.generation))
    gang = contract.Gang(
        run=spec.run,
        generation=newest.generation,
        tasks=tasks,
        addresses={one.name: "127.0.0.1:1" for one in tasks},  # an evaluator talks to nobody
        max_restarts=spec.limits.restarts,
        seed=spec.seed,
    )
    folders = {**spec.folders, "checkpoints": str(newest.path.parent), "model": str(scratch)}
    program = spec.program_of("evaluator")
    return Launch(
        task=TASK,
        parent=os.getpid(),
        cwd=spec.cwd,
        program=replace(program, args=placeholders.fill(program.args, gang, task)),
        seed=spec.seed,
        identity=f"{TASK} rank None generation {gang.generation} launch 1",
        env={
            **spec.env_of("evaluator"),
            **contract.environment(gang, task, folders, spec.observe, spec.chief_name),
            **spec.gpus.variables(gang, task),
            ONLY: " ".join(one.name for one in checkpoints),
        },
    )


def _start(spec: Spec, launch: Launch, events: int) -> subprocess.Popen[bytes]:
    base = {**os.environ, **import_time(spec, sum(spec.sizes.values()))}
    if launch.program.kind == "command":
        words = [*launch.program.target, *launch.program.args]
        return _popen(words, launch.cwd, {**base, **launch.env, "OARLOCK_FD": str(events)}, events)
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(ORDERS.to_data(launch)).encode())
        file.flush()
        start = processes.entry("oarlock.agent.zygote.runner")
        words = [sys.executable, "-u", "-c", start, str(file.fileno()), str(events)]
        return _popen(words, launch.cwd, base, file.fileno(), events)


def _popen(words: Sequence[str], cwd: str, env: dict[str, str], *fds: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words, cwd=cwd, env=env, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()
        )
    except OSError as problem:
        raise OarlockError(f"cannot start {words[0]}: {problem.strerror}") from None


def _read(line: socket.socket) -> list[Event]:
    """All reports, until the program ends."""
    lines, found = Lines(), []
    while data := line.recv(_CHUNK):
        for text in lines.feed(data):
            try:
                event = messages.task_event(text, TASK, time.time())
            except (WireError, ValueError):
                continue  # a program may write anything
            if event["kind"] == "report":
                found.append(event)
    return found


def _placed(event: Event, checkpoints: Sequence[Checkpoint]) -> Event:
    """A program without `State.follow` names no generation: where there is one checkpoint, it means that."""
    if "generation" in event or len(checkpoints) > 1:
        return event
    return {**event, "step": checkpoints[0].step, "generation": checkpoints[0].generation}
