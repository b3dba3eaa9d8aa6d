"""Between two steps: save if it is time, leave if asked to. All ranks do it before the same step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable

from oarlock.run.contract import PREEMPTED
from oarlock.training.saving.session import Checkpointing
from oarlock.training.steps.gate import Gate
from oarlock.training.steps.schedule import Schedule
from oarlock.training.task import busyness

Things = Callable[[], Mapping[str, Any]]


class Boundary:
    def __init__(self, checkpointing: Checkpointing, schedule: Schedule, things: Things, first: int) -> None:
        self._checkpointing = checkpointing
        self._schedule = schedule
        self._things = things
        self._first = first
        self._gate = Gate(first)
        busyness.start()
        self._saved_at = time.monotonic()

    def cross(self, step: int, metrics: Mapping[str, Any], epoch: int | None = None) -> None:
        """Before `step` begins. Raises SystemExit where the run leaves."""
        due = self._gate.enter(step)
        self._checkpointing.poll()
        if step == self._first:
            return self._leave_if("halt" in due, step)
        if step == self._first + 1:  # optimizers have their state by now
            self._checkpointing.prepare(self._things())
        if due or self._schedule.is_due(step):
            self._save(step, metrics, epoch, is_last="halt" in due)
        elif self._is_time():
            self._gate.ask("save")
        return self._leave_if("halt" in due, step)

    def end(self, step: int, metrics: Mapping[str, Any], epoch: int | None = None) -> None:
        """After the last step: what follows (an export, a test) may fail without costing it. Only then is the
        gate left: whoever asks the run to leave meanwhile waits until the last steps are on the disk."""
        if step > self._first:
            self._save(step, metrics, epoch, is_last=True)
        self._gate.leave()
        self._checkpointing.close()

    def abandon(self) -> None:
        """The loop was left early: what is being written may finish, and nothing more is saved."""
        self._checkpointing.finish()
        self._gate.leave()
        self._checkpointing.close()

    def _save(self, step: int, metrics: Mapping[str, Any], epoch: int | None, is_last: bool) -> None:
        checkpointing = self._checkpointing
        if is_last:
            checkpointing.finish()
        if checkpointing.step != step:
            checkpointing.save(step, self._things(), metrics, epoch)
            self._saved_at = time.monotonic()
        if is_last:
            checkpointing.finish()

    def _is_time(self) -> bool:
        """A save in flight is waited for: one copy of the state is all the memory there is."""
        if self._schedule.seconds is None or not self._checkpointing.task.is_chief:
            return False
        return time.monotonic() - self._saved_at >= self._schedule.seconds and not self._checkpointing.is_busy

    def _leave_if(self, is_asked: bool, step: int) -> None:
        if is_asked:
            told = "which is saved" if self._checkpointing.step == step else "which could not be saved"
            self._checkpointing.say(f"asked to leave: stopped before step {step}, {told}")
            self._checkpointing.close()
            raise SystemExit(PREEMPTED)
