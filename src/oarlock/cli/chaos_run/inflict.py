"""Doing to a run what was drawn, and watching it recover. What happens to tasks goes through the leading
agent, what happens to pods through the cluster's API; the rest is read from the run's events."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from oarlock.cli.chaos_run.faults_drawn import POD_KINDS, Draw, Fault, Report, View, draws, goodput
from oarlock.cli.session.ask_agent import Refused, ask
from oarlock.errors import OarlockError
from oarlock.records.runs import RunFolder
from oarlock.records.watch import Tail
from oarlock.run.events import decode
from oarlock.run.run_state import RunState

GANG = "the gang"
_POLL = 0.02
_PATIENCE = 120.0  # seconds for a run to recover
_PATIENCE_REMOTE = 300.0  # where pods have to be started for that


@dataclass(frozen=True)
class Plan:
    kinds: tuple[str, ...]
    faults: int
    every: float
    pause: float
    seed: int


class Chaos:
    """`goes_on` says whether the run does; `begin`, `end` and `refuse` show what happens meanwhile."""

    def __init__(self, run: RunFolder, plan: Plan, goes_on: Callable[[], bool]) -> None:
        self.run = run
        self.plan = plan
        self.goes_on = goes_on
        self.view = View(run.name)
        self.report = Report(run.name, plan.seed, plan.kinds)
        self.begin: Callable[[float, Fault], None] = lambda elapsed, fault: None
        self.end: Callable[[Fault], None] = lambda fault: None
        self.refuse: Callable[[str], None] = lambda why: None
        self.patience = _PATIENCE_REMOTE if run.is_remote else _PATIENCE
        self.fault: Fault | None = None  # the one under way
        self._events = Tail(run.events_file)
        self._look()
        self._begin_counting()

    def go(self) -> None:
        """All that was planned, or until the run ends or does not recover. Raises OarlockError."""
        try:
            self._until(lambda: self.view.is_steady, "a gang that runs")
            self._begin_counting()
            for draw in islice(draws(self.plan.seed, self.plan.kinds, self.plan.every), self.plan.faults):
                self._leave_alone(draw.wait)
                if self._is_over or not self._inflict(draw):
                    return
        finally:
            self._conclude()

    def abandon(self, why: str) -> None:
        """The fault under way is not waited for, and what is paused goes on now: its host would see to that,
        too, but later."""
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
        """False if there is nothing more to be done."""
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

    def _begin(self, draw: Draw) -> Fault | None:
        """None if it was refused for good, or the run has ended. A gang may end between look and deed."""
        deadline = time.monotonic() + self.patience
        while True:
            self._until(lambda: self.view.is_steady, "a gang that runs")
            if self._is_over:
                return None
            try:
                return self._pod_fault(draw) if draw.kind in POD_KINDS else self._task_fault(draw)
            except Refused:
                if time.monotonic() > deadline:
                    raise
                self._leave_alone(_POLL)

    def _task_fault(self, draw: Draw) -> Fault:
        target = GANG if draw.kind == "preempt" else draw.of(self.view.running)
        fault = self.fault = Fault.upon(self.view, draw.kind, target, self.plan.pause)
        question = {"ask": "fault", "do": draw.kind, "task": target, "seconds": self.plan.pause}
        fault.note = ask(self.run, {**question, "generation": fault.generation})["note"]
        return fault

    def _pod_fault(self, draw: Draw) -> Fault | None:
        """Noted before: the leader's own pod may be the one."""
        from oarlock.engines.kubernetes import remove_pods

        names = remove_pods.pods(self.run)
        if not names:
            raise Refused(f"no pod of {self.run.name} is running")
        target = draw.of(names)
        fault = Fault.upon(self.view, draw.kind, target, 0)
        fault.note = ask(self.run, {"ask": "fault", "do": draw.kind, "pod": target})["note"]
        refusal = remove_pods.disturb(self.run, draw.kind, target)
        if refusal is None:
            self.fault = fault
            return fault
        self.report.refused += 1
        self.refuse(f"{draw.kind} {target} was refused: {refusal}")
        return None

    # Watching

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _is_over(self) -> bool:
        return not self._goes_on

    def _look(self) -> None:
        self._goes_on = self.goes_on()  # before the look: what was written by then is seen
        for line in self._events.lines():
            event = decode(line.decode(errors="replace"))
            if event is not None:
                self.view.apply(event)
                if self.fault is not None:
                    self.fault.hear(event)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Or until the run is over."""
        deadline = time.monotonic() + self.patience
        self._look()
        while not done() and self._goes_on:
            if time.monotonic() > deadline:
                raise _Late(f"{self.run.name}: no {what} within {self.patience:g} s")
            time.sleep(_POLL)
            self._look()

    def _leave_alone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._goes_on and (left := until - time.monotonic()) > 0:
            time.sleep(min(_POLL, left))
            self._look()

    def _why(self) -> str | None:
        """None if the run came to a good end meanwhile."""
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
