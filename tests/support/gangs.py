"""Starting real gangs of small programs, and waiting for what they do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oarlock.engines.local import local_engine
from oarlock.job import model
from oarlock.job.job_file import JobFile
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Watch
from oarlock.run import run_events
from oarlock.run.run_state import RunState
from tests.support.waiting import eventually

DEADLINE = 300.0
LOOK = 0.03  # seconds between two looks, which cost processor time that the gang needs
STEPS = """
import os, sys, time, oarlock
me = oarlock.current()
def train(steps, pause=0.01):
    for step in range(1, steps + 1):
        me.report(step, total=steps, loss=1 / step)
        time.sleep(pause)
"""


class Gang:
    """One run of a program given as text."""

    def __init__(
        self, folder: Path, program: str, machines: int = 1, run: str | None = None, **fields: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.py").write_text(program)
        fields = {"name": "gang", "program": "program.py", "roles": {"worker": 2}, **fields}
        if "command" in fields or "module" in fields:
            del fields["program"]
        jobfile = JobFile(job=model.parse(fields), folder=folder, source=None)
        self.run: RunFolder = local_engine.start(jobfile, run, machines)
        self.watch = Watch(self.run)
        self.events: list[run_events.Event] = []
        self.lines: list[str] = []

    @property
    def state(self) -> RunState:
        return self.watch.state

    def look(self) -> None:
        arrived, output = self.watch.look()
        self.events += arrived
        self.lines += [f"{line.task}| {line.text}" for block in output for line in block.lines()]

    def until(self, done: Callable[[Gang], Any], what: str, seconds: float = DEADLINE) -> Gang:
        def is_so() -> bool:
            is_held = self.run.is_held()
            self.look()
            if done(self):
                return True
            assert is_held, f"the run ended before {what}: {self.told()}"
            return False

        eventually(is_so, what, seconds, every=LOOK, evidence=self.told)
        return self

    def until_step(self, step: int, task: str = "worker-0", generation: int = 1) -> Gang:
        def reached(gang: Gang) -> bool:
            return gang.state.generation >= generation and any(
                event["step"] >= step
                for event in gang.of("report", generation=generation)
                if event["task"] == task
            )

        return self.until(reached, f"step {step} of {task} in generation {generation}")

    def end(self, seconds: float = DEADLINE) -> RunState:
        def has_ended() -> bool:
            is_held = self.run.is_held()
            self.look()
            return not is_held

        eventually(has_ended, "end of the run", seconds, every=LOOK, evidence=self.told)
        return self.state

    def of(self, kind: str, generation: int | None = None) -> list[run_events.Event]:
        """Events of a kind, of one generation where asked."""
        found, now = [], 0
        for event in self.events:
            now = event["generation"] if event["kind"] == "generation" else now
            if event["kind"] == kind and generation in (None, now):
                found.append(event)
        return found

    def pid(self, task: str) -> int:
        """A report may arrive before the news of the start."""
        self.until(lambda gang: gang.state.tasks[task].pid, f"start of {task}")
        pid = self.state.tasks[task].pid
        assert pid is not None
        return pid

    def kill(self, task: str, sig: int = signal.SIGKILL) -> int:
        pid = self.pid(task)
        os.kill(pid, sig)
        return pid

    def told(self) -> str:
        log = (self.run.path / "agent.log").read_text(errors="replace")
        return "\n".join([*map(str, self.events[-12:]), *self.lines[-30:], log[-2000:]])


def is_running(pid: int) -> bool:
    """Zombies do not run. One whose other threads still end holds its locks a moment longer."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False
    state, *rest = stat.rsplit(")", 1)[1].split()
    return state not in ("Z", "X") or int(rest[16]) > 1  # num_threads, the 20th field of all


def until_gone(pids: list[int], seconds: float = DEADLINE) -> None:
    eventually(
        lambda: not any(map(is_running, pids)),
        "end of all processes",
        seconds,
        every=0.01,
        evidence=lambda: f"still running: {[pid for pid in pids if is_running(pid)]}",
    )
