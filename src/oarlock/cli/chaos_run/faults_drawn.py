"""The faults that `oarlock chaos` draws, and what the events of a run say about them. Pure.

A fault begins with the note that the leading agent writes about it. The run has recovered with the first step
that the leader reports in the next generation; from a pause, with the next step of the paused task. A program
that does not report has recovered when all tasks of the next generation run, or the paused task continues.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oarlock.agent.protocol.fault_notes import continued
from oarlock.run.accounting import Accounts, step_of
from oarlock.run.contract import PREEMPTED
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState

KINDS = ("kill", "pause", "preempt")
POD_KINDS = ("delete", "evict")
_THINNED = 10.0  # reports a second; the very last steps of a faster program are not known


@dataclass(frozen=True)
class Draw:
    """One fault before its target is chosen: the same seed gives the same faults."""

    kind: str
    wait: float  # seconds without a fault before this one
    where: float  # 0 to 1: which of the possible targets

    def of(self, names: Sequence[str]) -> str:
        """Choose the target."""
        return names[int(self.where * len(names))]


def draws(seed: int, kinds: Sequence[str], every: float) -> Iterator[Draw]:
    """Yield faults. Each takes three random numbers: one more task changes only the targets."""
    chance = random.Random(seed)
    while True:
        kind = kinds[int(chance.random() * len(kinds))]
        yield Draw(kind, every * (0.5 + chance.random()), chance.random())


class View:
    """The state of a run from its events, and whether it is training steadily."""

    def __init__(self, run: str) -> None:
        self.state = RunState(run)
        self.stepping = False  # the leader has reported in this generation

    def apply(self, event: Event) -> None:
        """Take the next event into account."""
        self.state.apply(event)
        if event["kind"] in ("generation", "agent"):
            self.stepping = False
        elif event["kind"] == "report" and self.state.leader is not None:
            self.stepping |= event["task"] == self.state.leader.name and step_of(event) is not None

    @property
    def running(self) -> list[str]:
        """The tasks that run now."""
        return [task.name for task in self.state.tasks.values() if task.state == "running"]

    @property
    def is_steady(self) -> bool:
        """Whether all tasks run and, if the program reports, the leader makes steps."""
        states = {task.state for task in self.state.tasks.values()}
        all_run = self.state.state == "running" and "running" in states and "pending" not in states
        return all_run and (self.stepping or not self.reports)

    @property
    def reports(self) -> bool:
        """Whether the program reports steps."""
        return self.state.leader is not None and self.state.leader.step is not None


@dataclass
class InflictedFault:
    """A fault that was inflicted, and how the run recovered from it."""

    kind: str
    target: str  # a task, a pod, or the gang
    generation: int  # in which it happened
    leader: str
    step: int | None = None  # the last that the leader reported before; None: it does not report
    awaited: str | None = None  # the task whose next step ends a pause, or a restart of one task alone
    pause: float = 0.0
    rate: float | None = None  # the leader's, in steps a second
    note: str | None = None  # what the record says about it
    at: float | None = None  # when, by the clock of the agent
    seconds: float | None = None  # until the run had recovered; for a pause, counted from its end
    resumed: int | None = None  # the first step that the leader reported after it
    formed: int | None = None  # the generation that followed
    is_about: bool = False  # the last step before it is not known exactly
    problem: str | None = None  # why it did not recover
    _starting: set[str] = field(default_factory=set)
    _is_alone: bool = False

    @classmethod
    def upon(cls, view: View, kind: str, target: str, pause: float) -> InflictedFault:
        """Begin a fault, with what the run is doing now."""
        state = view.state
        assert state.leader is not None, "a run that has formed has tasks"
        task = state.tasks.get(target)
        awaited = task if task is not None and task.step is not None else state.leader
        return cls(
            kind,
            target,
            state.generation,
            state.leader.name,
            state.leader.step,
            awaited.name if awaited.step is not None else None,
            pause if kind == "pause" else 0.0,
            state.leader.rate,
        )

    @property
    def is_recovered(self) -> bool:
        """Whether the run has recovered from it."""
        return self.seconds is not None

    @property
    def repeated(self) -> int:
        """The number of steps that were repeated. The leader reports a step after making it."""
        if self.formed is None or self.step is None or self.resumed is None:
            return 0
        return max(0, self.step - self.resumed + 1)

    def hear(self, event: Event) -> None:
        """Take the next event into account, until the run has recovered."""
        if self.is_recovered:
            return
        if self.at is None:
            if event["kind"] == "note" and event.get("text") == self.note:
                self.at = event["t"]
            else:
                self._before(event)
            return
        change = getattr(self, f"_on_{event['kind']}", None)
        if change is not None:
            change(event, self.at)

    def _before(self, event: Event) -> None:
        """Take in a late report from before the fault: the last step of a task that is dead by now."""
        step = step_of(event) if event["kind"] == "report" and event["task"] == self.leader else None
        if step is not None:
            self.step = step if self.step is None else max(self.step, step)

    def _on_generation(self, event: Event, _: float) -> None:
        if event["generation"] > self.generation:
            self.formed, self._starting = event["generation"], set(event.get("tasks") or [])

    def _on_restart(self, event: Event, _: float) -> None:
        self._is_alone |= bool(event.get("alone")) and event.get("task") == self.target

    def _on_task(self, event: Event, at: float) -> None:
        name, is_start = event["task"], event["state"] == "started"
        if is_start and self.formed is not None:
            self._starting.discard(name)
            if not self._starting and self.step is None:
                self.seconds = event["t"] - at
        elif is_start and self._is_alone and name == self.target and self.awaited != self.target:
            self.seconds = event["t"] - at
        elif not is_start and self.formed is None and name == self.leader:
            was_cut = (event.get("code") or 0) >= 128 and event["code"] != PREEMPTED
            self.is_about = was_cut and (self.rate is None or self.rate > _THINNED)

    def _on_report(self, event: Event, at: float) -> None:
        step, now = step_of(event), event["t"]
        if step is None:
            return
        if self.formed is not None:
            if event["task"] == self.leader:
                self.resumed, self.seconds = step, now - at
        elif self.kind == "pause" and event["task"] == self.awaited and now >= at + self.pause:
            self.resumed, self.seconds = step, now - at - self.pause
        elif self._is_alone and event["task"] == self.target:
            self.resumed, self.seconds = step, now - at
        else:
            self._before(event)

    def _on_note(self, event: Event, at: float) -> None:
        if self.kind == "pause" and self.awaited is None and event.get("text") == continued(self.target):
            self.seconds = max(0.0, event["t"] - at - self.pause)

    def to_data(self) -> dict[str, Any]:
        """Return the fault as JSON data."""
        names = ("kind", "target", "generation", "at", "step", "seconds", "resumed")
        return {
            **{name: getattr(self, name) for name in names},
            "recovered": self.is_recovered,
            "repeated": self.repeated,
            "about": self.is_about,
            "problem": self.problem,
        }


@dataclass
class Report:
    """The result of a session."""

    run: str
    seed: int
    kinds: Sequence[str]
    faults: list[InflictedFault] = field(default_factory=list)
    refused: int = 0  # faults that a disruption budget refused
    state: str = ""  # the run's, at the end
    elapsed: float = 0.0
    generations: int = 0  # formed during the session
    goodput: float | None = None
    problem: str | None = None  # why it ended early

    @property
    def recovered(self) -> list[InflictedFault]:
        """The faults from which the run has recovered."""
        return [fault for fault in self.faults if fault.is_recovered]

    @property
    def failed(self) -> list[InflictedFault]:
        """The faults from which the run has not recovered."""
        return [fault for fault in self.faults if fault.problem is not None]

    @property
    def repeated(self) -> int:
        """The steps that were repeated."""
        return sum(fault.repeated for fault in self.recovered)

    @property
    def recovery(self) -> dict[str, float | None]:
        """How long recoveries took, in seconds."""
        return spread([fault.seconds for fault in self.recovered if fault.seconds is not None])

    def to_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "run": self.run,
            "state": self.state,
            "seed": self.seed,
            "kinds": list(self.kinds),
            "elapsed": self.elapsed,
            "inflicted": len(self.faults),
            "recovered": len(self.recovered),
            "refused": self.refused,
            "recovery": self.recovery,
            "repeated": self.repeated,
            "goodput": self.goodput,
            "generations": self.generations,
            "problem": self.problem,
            "faults": [fault.to_data() for fault in self.faults],
        }


def spread(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the median, the 99th percentile (the maximum if there are few) and the maximum."""
    if not seconds:
        return {"median": None, "p99": None, "max": None}
    ordered = sorted(seconds)
    return {
        "median": statistics.median(ordered),
        "p99": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def goodput(before: Mapping[str, int], accounts: Accounts) -> float | None:
    """Return the share of the time since `before` that went into steps whose work was kept.

    Lost work of earlier steps is subtracted. None if the program does not report.
    """
    now = accounts.at()
    passed = sum(now.values()) - sum(before.values())
    if not accounts.reports or passed <= 0:
        return None
    return min(1.0, max(0.0, (now["step"] - before["step"]) / passed))
