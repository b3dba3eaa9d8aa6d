"""Between two steps: save if it is time, exit if asked to. All ranks do so before the same step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable

from oarlock.run.contract import PREEMPTED
from oarlock.training.frameworks import coordinators
from oarlock.training.saving.session import CheckpointSession
from oarlock.training.steps.exports import Exports
from oarlock.training.steps.gate import Gate
from oarlock.training.steps.schedule import Schedule
from oarlock.training.task import busyness

Objects = Callable[[], Mapping[str, Any]]  # what to save, by name


class Boundary:
    """`first` is the step that the loop starts or resumes with."""

    def __init__(
        self,
        session: CheckpointSession,
        schedule: Schedule,
        objects: Objects,
        first: int,
        exports: Exports | None = None,
    ) -> None:
        self._session = session
        self._exports = exports or Exports()
        self._schedule = schedule
        self._objects = objects
        self._first = first
        session.take_over()
        self._gate = Gate(first)
        busyness.start()
        self._saved_at = time.monotonic()

    def cross(self, step: int, metrics: Mapping[str, Any], epoch: int | None = None) -> None:
        """Call before `step` begins. Raises SystemExit if the run is to stop here."""
        coordinators.keep_up()
        due = self._gate.enter(step)
        self._session.poll()
        if step == self._first:
            return self._exit_if("halt" in due, step)
        if step == self._first + 1:  # optimizers have their state by now
            self._session.prepare(self._objects())
        if due or self._schedule.is_due(step) or self._exports.is_due(step):
            self._save(step, metrics, epoch, is_last="halt" in due)
            if "halt" not in due and (trouble := self._exports.after_save(step)):
                self._session.say(trouble)
        elif self._is_time():
            self._gate.ask("save")
        return self._exit_if("halt" in due, step)

    def end(self, step: int, metrics: Mapping[str, Any], epoch: int | None = None) -> None:
        """Call after the last step, so that what follows (the last export, a test) can fail without losing
        it. It leaves the gate only after the save: an agent that wants the run to stop waits until the last
        step is on the disk. Raises what the export raises."""
        if step > self._first:
            self._save(step, metrics, epoch, is_last=True)
        self._gate.leave()
        self._session.close()
        self._exports.at_end(step)

    def abandon(self) -> None:
        """Call if the program leaves the loop early: let the save in flight finish, and save nothing more."""
        self._session.finish()
        self._gate.leave()
        self._session.close()

    def _save(self, step: int, metrics: Mapping[str, Any], epoch: int | None, is_last: bool) -> None:
        session = self._session
        if is_last:
            session.finish()
        if session.step != step:
            coordinators.join()  # or the state would lack some of the steps before this one
            session.save(step, self._objects(), metrics, epoch)
            self._saved_at = time.monotonic()
        if is_last:
            session.finish()

    def _is_time(self) -> bool:
        """Whether a timed save is due. Not while one is in flight: there is memory for one copy."""
        if self._schedule.seconds is None or not self._session.task.is_chief:
            return False
        return time.monotonic() - self._saved_at >= self._schedule.seconds and not self._session.is_busy

    def _exit_if(self, is_asked: bool, step: int) -> None:
        if is_asked:
            how = "which is saved" if self._session.step == step else "which could not be saved"
            self._session.say(f"asked to stop: stopped before step {step}, {how}")
            self._session.close()
            raise SystemExit(PREEMPTED)
