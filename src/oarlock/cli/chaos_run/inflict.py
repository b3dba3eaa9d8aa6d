"""Inflict faults on a run and watch it recover.

Faults of tasks go through the leading agent, faults of pods through the engine; everything else is read from
the run's events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from oarlock.cli.chaos_run.faults_drawn import POD_KINDS, Draw, InflictedFault, Report, View, draws, goodput
from oarlock.cli.session.ask_agent import RunRefusedError, ask
from oarlock.engines.engine import engine_of
from oarlock.errors import OarlockError
from oarlock.records.run_folder import RunFolder
from oarlock.records.watch import Tail
from oarlock.run.run_events import decode
from oarlock.run.run_state import RunState
from oarlock.system.backoff import retry
from oarlock.system.polling import wait_for

GANG = "the gang"
_POLL = 0.02


@dataclass(frozen=True)
class Plan:
    """The faults to inflict."""

    kinds: tuple[str, ...]
    faults: int
    every: float
    pause: float
    seed: int


class Chaos:
    """One session of faults on a run.

    `is_live` returns whether the run is running; `begin`, `end` and `refuse` show what happens.
    """

    def __init__(self, run: RunFolder, plan: Plan, is_live: Callable[[], bool]) -> None:
        self.run = run
        self.engine = engine_of(run)
        self.plan = plan
        self.is_live = is_live
        self.view = View(run.name)
        self.report = Report(run.name, plan.seed, plan.kinds)
        self.begin: Callable[[float, InflictedFault], None] = lambda elapsed, fault: None
        self.end: Callable[[InflictedFault], None] = lambda fault: None
        self.refuse: Callable[[str], None] = lambda why: None
        self.patience = self.engine.traits.recovery_seconds
        self.fault: InflictedFault | None = None  # the one under way
        self._events = Tail(run.events_file)
        self._read_events()
        self._begin_counting()

    def go(self) -> None:
        """Inflict all planned faults, or until the run ends or does not recover. Raises OarlockError."""
        try:
            self._until(lambda: self.view.is_steady, "running gang")
            self._begin_counting()
            for draw in islice(draws(self.plan.seed, self.plan.kinds, self.plan.every), self.plan.faults):
                self._leave_alone(draw.wait)
                if self._is_over or not self._inflict(draw):
                    return
        finally:
            self._conclude()

    def abandon(self, why: str) -> None:
        """End the session now, and continue a paused task: its host would do that too, but later."""
        self.report.problem = why
        fault = self.fault
        if fault is None or fault.is_recovered:
            return
        if fault.kind == "pause" and fault.formed is None:
            question = {"ask": "fault", "do": "continue", "task": fault.target}
            with suppress(OarlockError):
                ask(self.run, {**question, "generation": fault.generation})
        if fault in self.report.faults:
            fault.problem = why
            self.end(fault)

    def _inflict(self, draw: Draw) -> bool:
        """Inflict one fault; return whether the session continues."""
        fault = self._begin(draw)
        if fault is None:
            return not self._is_over
        self.report.faults.append(fault)
        self.begin(self.elapsed, fault)
        with suppress(_Late):
            self._until(lambda: fault.is_recovered, "recovery")
        if not fault.is_recovered:
            fault.problem = self._why()
        self.fault = None
        self.end(fault)
        return fault.is_recovered

    def _begin(self, draw: Draw) -> InflictedFault | None:
        """Begin a fault; None if it was refused or the run has ended. A gang may end just before it."""

        def attempt() -> InflictedFault | None:
            self._until(lambda: self.view.is_steady, "running gang")
            if self._is_over:
                return None
            return self._pod_fault(draw) if draw.kind in POD_KINDS else self._task_fault(draw)

        return retry(attempt, RunRefusedError, self.patience, (_POLL, _POLL))

    def _task_fault(self, draw: Draw) -> InflictedFault:
        target = GANG if draw.kind == "preempt" else draw.of(self.view.running)
        fault = self.fault = InflictedFault.upon(self.view, draw.kind, target, self.plan.pause)
        question = {"ask": "fault", "do": draw.kind, "task": target, "seconds": self.plan.pause}
        fault.note = ask(self.run, {**question, "generation": fault.generation})["note"]
        return fault

    def _pod_fault(self, draw: Draw) -> InflictedFault | None:
        """The leading agent writes its note first: the fault may hit the leader's own pod."""
        names = self.engine.pods(self.run)
        if not names:
            raise RunRefusedError(f"no pod of {self.run.name} is running")
        target = draw.of(names)
        fault = InflictedFault.upon(self.view, draw.kind, target, 0)
        fault.note = ask(self.run, {"ask": "fault", "do": draw.kind, "pod": target})["note"]
        refusal = self.engine.remove_pod(self.run, draw.kind, target)
        if refusal is None:
            self.fault = fault
            return fault
        self.report.refused += 1
        self.refuse(f"{draw.kind} {target} was refused: {refusal}")
        return None

    # Watching

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._began

    @property
    def _is_over(self) -> bool:
        return not self._is_live

    def _read_events(self) -> None:
        self._is_live = self.is_live()  # before events are read: what was written by then is seen
        for line in self._events.lines():
            event = decode(line.decode(errors="replace"))
            if event is not None:
                self.view.apply(event)
                if self.fault is not None:
                    self.fault.hear(event)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done` returns True or the run has ended."""

        def is_done() -> bool:
            self._read_events()
            return done() or not self._is_live

        try:
            wait_for(is_done, what, self.patience, every=_POLL)
        except TimeoutError as late:
            raise _Late(f"{self.run.name}: {late}") from None

    def _leave_alone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._is_live and (left := until - time.monotonic()) > 0:
            time.sleep(min(_POLL, left))
            self._read_events()

    def _why(self) -> str | None:
        """Why the run has not recovered; None if it has succeeded since."""
        state = self._state()
        if not self._is_over:
            return f"not recovered after {self.patience:g} s"
        if state.state == "succeeded":
            return None
        refusal = state.failure.refusal if state.failure else None
        return f"the run {state.state}" + (f": {refusal or state.reason}" if refusal or state.reason else "")

    def _state(self) -> RunState:
        return self.run.state() if self._is_over else self.view.state

    def _begin_counting(self) -> None:
        self._began = time.monotonic()
        self._generation = self.view.state.generation
        self._accounts = self.view.state.accounts.at()

    def _conclude(self) -> None:
        state = self._state()
        self.report.state = state.state
        self.report.elapsed = self.elapsed
        self.report.generations = state.generation - self._generation
        self.report.goodput = goodput(self._accounts, state.accounts)


class _Late(OarlockError):
    pass
