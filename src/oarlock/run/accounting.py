"""Where a run's time went: every microsecond of it belongs to exactly one part. Pure; travels into pods.

    start       from the run's creation, or from the agent that resumed it, until a generation forms
    rendezvous  from when a generation forms to the first step that it reports
    step        steps whose work was kept, and what followed the last one if the run succeeded with it
    checkpoint  the seconds in `checkpoint` events, subtracted from step
    lost        steps that a later generation repeated, and what followed the last step of a generation
                that failed, was stopped or had to form again
    waiting     no task ran: from a generation's end (its last task's, or the `restart` event) until the next
                forms or the run ends, and from an agent's last sign until the next one resumed the run

Goodput is step / total. A step counts once, in the execution that was kept: when a generation's first step
is s, the time that earlier ones spent on s and beyond turns from step into lost. Charging the repetition
as well would count each loss twice (a run that has to do everything twice has a goodput of a half).

The chief or worker that reports a step first decides its time. Reports are sampled, so the time between two
reported steps is divided evenly among the steps between them. A generation that ends without a reported
step counts as step as long as no generation of this run has reported one, and as rendezvous after that:
then it failed before its first. Time that is not assigned yet is shown as what it will be if all goes well.
Clocks of several machines may disagree: time never runs backward here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oarlock.run.cluster import TRAINERS, is_ingest
from oarlock.run.observed import knows_its_step, source_of
from oarlock.run.typed import build, is_number

PARTS = ("start", "rendezvous", "step", "checkpoint", "lost", "waiting")
_PHASES = ("start", "together", "waiting", "over")
_STEPS = 512  # kept; more than that, and neighbors are joined: the record of a long run must stay small
LATEST = 1e11  # seconds since the epoch: no clock is in the year 5138


@dataclass
class Accounts:
    """All times are in microseconds. Gets every event of the run, in order."""

    clock: int | None = None  # the latest event's time
    phase: str = "start"  # one of _PHASES; together: a generation runs
    start: int = 0
    rendezvous: int = 0
    checkpoint: int = 0
    lost: int = 0
    waiting: int = 0
    steps: list[list[int]] = field(default_factory=list)  # [step, time since the previous one]: kept so far
    finished: int = 0  # time after the last step of a generation that ended well
    silent: int = 0  # time of generations that ended without a step
    undecided: int = 0  # time of this generation since its last step
    is_settled: bool = True  # whether this generation's time has been assigned
    is_stepping: bool = False  # whether this generation has reported a step
    reports: bool = False  # whether any generation has
    alive: list[str] = field(default_factory=list)  # tasks of this generation that have not ended
    members: list[str] = field(default_factory=list)  # all tasks of this generation; the first leads
    has_agent: bool = False

    @classmethod
    def from_data(cls, data: Any) -> Accounts:
        """Read what asdict returned. Raises ValueError if it makes no sense."""
        accounts = build(cls, data)
        if accounts.phase not in _PHASES or any(len(pair) != 2 for pair in accounts.steps):
            raise ValueError("accounts that do not add up")
        return accounts

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take an event into account."""
        if self.phase == "over" and event["kind"] != "agent":
            return  # the run's clock stops with its verdict
        self._advance(event)
        change = getattr(self, f"_on_{event['kind']}", None)
        if change is not None:
            change(event)

    def at(self, now: float | None = None) -> dict[str, int]:
        """Microseconds of each part, up to `now` if given, otherwise up to the last event."""
        running = 0 if now is None or self.clock is None else max(0, _microseconds(now, 0) - self.clock)
        parts = {
            "start": self.start,
            "rendezvous": self.rendezvous,
            "step": sum(spent for _, spent in self.steps) + self.finished,
            "checkpoint": self.checkpoint,
            "lost": self.lost,
            "waiting": self.waiting,
        }
        parts["rendezvous" if self.reports else "step"] += self.silent
        current = "step" if self.is_stepping else "rendezvous"
        parts[current] += self.undecided
        if self.phase != "over":
            parts[current if self.phase == "together" else self.phase] += running
        return parts

    def in_seconds(self, now: float | None = None) -> dict[str, float | None]:
        """The result of `at` in seconds, with `total` and `goodput`, which is None while unknown."""
        parts = self.at(now)
        total = sum(parts.values())
        is_known = total > 0 and (self.reports or self.phase == "over")
        return {
            "total": total / 1e6,
            **{name: spent / 1e6 for name, spent in parts.items()},
            "goodput": parts["step"] / total if is_known else None,
        }

    def _advance(self, event: Mapping[str, Any]) -> None:
        before = self.clock
        self.clock = max(_microseconds(event["t"], before), before or 0)
        passed = self.clock - (self.clock if before is None else before)
        if event["kind"] == "agent" and self.has_agent:
            self.waiting += passed  # the previous agent was gone
        elif self.phase == "start":
            self.start += passed
        elif self.phase == "together":
            self.undecided += passed
        else:
            self.waiting += passed

    def _on_agent(self, _: Mapping[str, Any]) -> None:
        self._settle()
        self.has_agent, self.phase = True, "start"

    def _on_generation(self, event: Mapping[str, Any]) -> None:
        self._settle()
        self.members = list(event.get("tasks") or self.members)
        self._form()

    def _on_task(self, event: Mapping[str, Any]) -> None:
        name = event["task"]
        if self.is_settled or is_ingest(name):
            return
        self.alive = [other for other in self.alive if other != name]
        if event["state"] == "started":
            self.alive.append(name)
        self.phase = "together" if self.alive else "waiting"

    def _on_report(self, event: Mapping[str, Any]) -> None:
        step = step_of(event) if knows_its_step(source_of(event)) else None
        if step is None or self.is_settled or _role(event["task"]) not in TRAINERS:
            return
        if not self.is_stepping:
            self.is_stepping = self.reports = True
            self.rendezvous += self.undecided
            self._go_back(step)
            self.steps.append([step, 0])
        elif step > self.steps[-1][0]:
            self.steps.append([step, self.undecided])
        else:
            return
        self.undecided = 0
        self._join_neighbours()

    def _on_checkpoint(self, event: Mapping[str, Any]) -> None:
        """Count the leader's time for all members: they save together."""
        if self.is_settled or event.get("task") not in (None, *self.members[:1]):
            return
        left = _microseconds(event.get("seconds"), 0)
        taken = min(left, self.undecided)
        self.undecided -= taken
        for mark in reversed(self.steps if self.is_stepping else []):  # the step's report may have come first
            more = min(left - taken, mark[1])
            mark[1] -= more
            taken += more
        self.checkpoint += taken

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        if not event.get("alone"):
            self._settle()
            self.phase = "waiting"
        elif _role(event.get("task") or "") in TRAINERS and not any(
            _role(name) == "ps" for name in self.members
        ):
            # The only task that trains, besides an evaluator: what it had in memory is gone.
            self._settle()
            self._form()

    def _on_end(self, event: Mapping[str, Any]) -> None:
        self._settle(well=event["state"] == "succeeded")
        self.phase = "over"

    def _form(self) -> None:
        self.phase, self.is_settled, self.is_stepping = "together", False, False
        self.alive = list(self.members)

    def _settle(self, well: bool = False) -> None:
        """The generation has ended: assign its time since the last step."""
        if not self.is_stepping:
            self.silent += self.undecided
        elif well:
            self.finished += self.undecided
        else:
            self.lost += self.undecided
        self.undecided, self.is_settled, self.is_stepping = 0, True, False

    def _go_back(self, step: int) -> None:
        """All work from `step` on is repeated: count the earlier time for it as lost."""
        while self.steps and self.steps[-1][0] >= step:
            last, spent = self.steps.pop()
            before = self.steps[-1][0] if self.steps else last
            kept = 0
            if before < step - 1:
                kept = spent * (step - 1 - before) // (last - before)
                self.steps.append([step - 1, kept])
            self.lost += spent - kept

    def _join_neighbours(self) -> None:
        if len(self.steps) > _STEPS:
            first, *rest = self.steps
            pairs = zip(rest[::2], rest[1::2])
            odd = rest[-1:] if len(rest) % 2 else []
            self.steps = [first, *([later[0], one[1] + later[1]] for one, later in pairs), *odd]


def step_of(event: Mapping[str, Any]) -> int | None:
    """The step in a report. A program may write anything there."""
    step: Any = event.get("step")
    return int(step) if is_number(step) else None


def _role(task: str) -> str:
    return task.rpartition("-")[0]


def _microseconds(seconds: Any, otherwise: int | None) -> int:
    if not is_number(seconds) or not 0 <= seconds < LATEST:
        return otherwise or 0
    whole: int = round(seconds * 1e6)
    return whole
