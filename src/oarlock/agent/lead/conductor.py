"""The deciding half: it forms the gang out of the agents that are there, judges how tasks end, and
gives the verdict. It lives in the leading agent and talks to hosts only through wishes and statuses.

    gathering -> running -> clearing    a task failed, an agent was lost, somebody joined: all start again
                         -> finishing   the leader ended with 0
                         -> stopping    somebody asked, or a limit was reached
                         -> halting     before an end that is nobody's failure, where all trainers have
                                        gates: they save, leave before the same step, and it goes on
    ... -> over

A wish is repeated to whoever (re)connects, so a cut network loses nothing: both sides compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock.agent.lead import culprit
from oarlock.agent.lead.machine_order import Seats
from oarlock.agent.lead.placement import Agent, Placement
from oarlock.agent.lead.report_sampling import Thinning
from oarlock.agent.lead.restart_budget import Budget, Loss
from oarlock.agent.lead.step_agreement import Meetings
from oarlock.agent.lead.target_size import Wanted
from oarlock.agent.net.loop import Action, Loop
from oarlock.agent.net.oddities import Oddities
from oarlock.agent.protocol.gates import GateMessage
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.status import Status
from oarlock.agent.protocol.timing import LOST
from oarlock.agent.protocol.wire import Message
from oarlock.agent.protocol.wishes import (
    Clear,
    Finish,
    Halt,
    Over,
    Part,
    Run,
    ShowStacks,
    Stop,
    ToGates,
    Wish,
)
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots import transfer
from oarlock.run.cluster import Task, restarts_with
from oarlock.run.contract import PREEMPTED, Gang
from oarlock.run.events import Event

_PATIENCE = 5.0  # seconds that an elastic gang waits for more than its least members
_STOPPED_BY_USER = 130
_OUT_OF_TIME = 124
_AHEAD = 10**6  # generations that an agent may remember and we do not: one that says more is not believed


class Conductor:
    def __init__(self, loop: Loop, spec: Spec, record: Record) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        self.phase = "gathering"
        self.agents: dict[str, Agent] = {}
        self.seats = Seats(Path(spec.folder) / "seats")
        self.oddities = Oddities(loop, lambda text: record.emit("note", text=text))
        self.wanted = Wanted(spec, record.state.workers if spec.is_replaced else None)  # as before us
        self.generation = record.state.generation
        self.tasks: tuple[Task, ...] = ()
        self.places: dict[str, list[str]] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.launches: dict[str, int] = {}
        self.budget = Budget(spec.limits.restarts)
        self.alone: dict[str, Budget] = {}  # of tasks that start again by themselves
        self.best_step: float = max((task.step or 0 for task in record.state.tasks.values()), default=0)
        self.progressed = self.reports = False
        self.blame: str | None = None  # why a generation ends that no task's exit ended
        self.refusal: str | None = None  # why no generation follows this one: it would meet the same failure
        self.is_forgiven = False  # that end is nobody's failure: it costs no restart
        self.stopped: tuple[str, int, str] | None = None  # state, code, reason
        self.code: int | None = None  # the verdict
        # What is to be done when nobody trains any more, before the verdict: (state, what comes then).
        self.last_things: Callable[[str, Action], None] = lambda state, then: then()
        self.leads: Callable[[], bool] = lambda: True  # nobody else does in our place
        self.is_moving = False  # this machine goes, the run goes on: not a verdict
        self.informed: set[str] = set()  # who was told that the run is over
        self.meetings = Meetings(loop, self._tell_hosts)
        self.after_halt: Callable[[], None] = self._end_generation
        self.halt_ends = 0.0  # when patience with those who halt is over
        self.desired: Wish = Clear(self.generation)
        self.formed_at = time.monotonic()
        self.thinning = Thinning(self.formed_at)

    def start(self) -> None:
        if self.spec.limits.runtime is not None:
            self.loop.after("runtime", self.spec.limits.runtime, self._on_runtime)
        self.loop.after("rendezvous", self.spec.limits.rendezvous, self._on_nobody_came)

    # Agents come and go

    def join(self, agent: Agent) -> str | None:
        """Take it in, or say why not. Of two with one name the one that came last stays."""
        known = self.agents.get(agent.name)
        if known is not None and known.is_leading:
            return f"{agent.name} leads this run"
        refusal = self.seats.take(agent.name, agent.machine)
        if refusal is not None:
            return refusal
        if known is not None and known.uid != agent.uid:
            known.send(Over(self.generation, PREEMPTED, replaced=True))
        self.loop.cancel(f"loss of {agent.name}")
        if known is not None and known.uid == agent.uid:
            agent.status = known.status
        self.agents[agent.name] = agent
        hosted = ", ".join(self.places.get(agent.name, []))
        if hosted and self.phase == "running" and not agent.status:
            self.blame = f"{agent.name} was lost, which hosted {hosted}; another has taken its place"
            self._end_generation()
        elif hosted and self.phase == "halting" and not agent.status:
            self._go_on()
        self._wish_to(agent)
        if self.meetings.current is not None and self.phase in ("running", "halting"):
            agent.send(ToGates(self.generation, self.meetings.current.message()))
        return None

    def hear(self, agent: Agent, status: Status) -> None:
        """The agent's status has changed."""
        if self.agents.get(agent.name) is not agent:
            return
        agent.status = status
        if status.generation == self.generation and self.phase in ("running", "halting"):
            outcomes = self._outcomes_of(agent)
            ended = [outcome.name for outcome in outcomes if not outcome.is_alive]
            self.meetings.hear(self.places.get(agent.name, []), status.gates, ended)
            for outcome in outcomes:
                self._judge(outcome)
        if status.leaving:
            self._let_go(agent)
        self._consider()

    def hear_event(self, agent: Agent, event: Event) -> None:
        if self.agents.get(agent.name) is not agent:
            return  # another has taken its place
        if "task" in event and event["task"] not in self.places.get(agent.name, []):
            return  # of an earlier generation, or not its to speak of
        event = {**event, "t": min(event["t"], time.time())}  # another machine's clock may be ahead of ours
        kind = event.pop("kind")
        if kind == "ready" and not self.spec.is_alone:
            event["on"] = agent.name
        if kind == "report":
            self._on_report(event)
        elif kind == "never_ready":
            self._on_never_ready(agent, event["text"])
        else:
            self.record.emit(kind, **event)

    def _outcomes_of(self, agent: Agent) -> list[Outcome]:
        """In this generation. A member speaks for the tasks that are placed on it, and for nobody else's."""
        if agent.status is None or agent.status.generation != self.generation:
            return []
        placed = self.places.get(agent.name, [])
        found = [outcome for outcome in agent.status.tasks if outcome.name in placed]
        if len(found) < len(agent.status.tasks):
            self.oddities.add(agent.name, "it spoke for a task that is not placed on it")
        return found

    def _on_never_ready(self, agent: Agent, why: str) -> None:
        """That ends the run if the run waits for this machine: not if tasks run there, or it is a spare."""
        is_at_work = any(outcome.is_alive for outcome in self._outcomes_of(agent))
        is_spare = self.phase != "gathering" and not self.places.get(agent.name)
        if is_at_work or is_spare:
            self.record.emit("note", text=f"{agent.name} can run no tasks: {why}")
        else:
            self._end("failed", 1, why)

    def leave(self, agent: Agent, why: str, for_good: bool = False) -> None:
        """Its connection is gone. It may come back; its tasks may live on for FENCE seconds."""
        if self.agents.get(agent.name) is not agent or self.phase == "over":
            return
        agent.is_connected = False
        if for_good:
            self._on_lost(agent, why, for_good)
        else:
            self.loop.after(f"loss of {agent.name}", LOST, lambda: self._on_lost(agent, why))

    def scale(self, workers: int) -> str | None:
        """Another number of workers for a live run. None, or why not."""
        if self.phase in ("finishing", "stopping", "over") or self.stopped is not None:
            return "the run is ending"
        refusal = self.spec.refuses_workers(workers)
        if refusal is not None:
            return refusal
        if self.wanted.set_workers(workers):
            noun = "worker" if workers == 1 else "workers"
            self.record.emit("scale", workers=workers)
            self._resize(f"scaled to {workers} {noun}")
        return None

    @property
    def formation(self) -> Message:
        """How many worker tasks are wanted, and the first generation that may have them."""
        tasks = self.wanted.sizes.get("worker", 0)
        return {"tasks": tasks, "generation": self.generation + (self.phase != "running")}

    def keep_next_reports(self) -> None:
        """One of every task's, however short ago the last one was."""
        self.thinning = Thinning(self.formed_at)

    def show_stacks(self) -> None:
        for agent in self.agents.values():
            if agent.is_connected:
                agent.send(ShowStacks(self.generation))

    def stop(self, state: str, code: int, reason: str) -> None:
        if self.phase in ("stopping", "over") or self.stopped is not None:
            return
        self.stopped = (state, code, reason)
        self.record.emit("stop", reason=reason)
        self._halt(self._stop_everybody)

    def stop_now(self) -> None:
        self._close_meetings()
        self.phase = "stopping"
        self._wish(Stop(self.generation, now=True))

    def _stop_everybody(self) -> None:
        """Who halts in vain has used up the grace that a stop would give."""
        self.phase = "stopping"
        left = self.halt_ends - time.monotonic() if self.halt_ends else self.spec.limits.grace
        self._wish(Stop(self.generation, left, now=left <= 0))
        self._consider()

    def on_user_stop(self) -> None:
        if self.phase == "stopping" or (self.phase == "halting" and self.stopped is not None):
            self.stop_now()
        else:
            self.stop("stopped", _STOPPED_BY_USER, "stopped by the user")

    def on_preempted(self) -> None:
        self.is_moving = self.spec.is_replaced
        self.stop("stopped", PREEMPTED, "the machine asked it to leave (SIGTERM)")

    def leave_now(self) -> None:
        """The same, without any grace."""
        self.on_preempted()
        if self.phase != "over":
            self.stop_now()

    def give_up(self, why: str) -> None:
        """Without having begun; or again, where the record holds the verdict."""
        state = self.record.state
        if state.is_final:
            self.phase, self.code = "over", state.code or 0
            self._wish(Over(self.generation, self.code))
        else:
            self._end("failed", 1, why)

    def _on_runtime(self) -> None:
        self.stop("failed", _OUT_OF_TIME, f"limits.runtime of {self.spec.limits.runtime:g} s is over")

    def _on_lost(self, agent: Agent, why: str, for_good: bool = False) -> None:
        if self.agents.get(agent.name) is agent:
            del self.agents[agent.name]
        hosted = ", ".join(self.places.get(agent.name, []))
        if hosted and self.phase == "running":
            self.blame = f"lost contact with {agent.name} ({why}), which hosted {hosted}"
            if for_good:
                self.blame, self.is_forgiven = f"{agent.name} left: {why}", True
            self._end_generation()
        elif hosted and for_good and self.phase == "clearing" and self.blame is None:
            self.blame, self.is_forgiven = f"{agent.name} left: {why}", True
        elif hosted and self.phase == "halting":
            self._go_on()
        self._consider()

    def _let_go(self, agent: Agent) -> None:
        """Its machine was asked to leave. Where nobody can halt it ends its tasks at once, as we then do."""
        hosted = self.places.get(agent.name, [])
        if self.phase == "running" and hosted and self.meetings.are_possible:
            self.blame, self.is_forgiven = f"{agent.name} left: it was asked to leave", True
            self._halt(self._end_generation)
        elif self.phase != "halting":
            agent.send(Part(self.generation))

    # Halting

    def _halt(self, then: Callable[[], None]) -> None:
        """Let all trainers save and leave before the same step, if they can, and go on with `then`."""
        self.after_halt = then
        if self.phase == "halting":
            return
        self.halt_ends = 0.0
        if self.phase != "running" or not self.meetings.are_possible:
            then()
            return
        self.phase = "halting"
        self.halt_ends = time.monotonic() + self.spec.limits.grace
        self.loop.cancel("stall")
        self.loop.after("halt", self.spec.limits.grace, self._go_on)
        self._wish(Halt(self.generation))
        self.meetings.halt()

    def _go_on(self) -> None:
        self._close_meetings()
        if self.phase == "halting":
            self.after_halt()

    def _close_meetings(self) -> None:
        self.loop.cancel("halt")
        self.meetings.close()

    def _tell_hosts(self, message: GateMessage) -> None:
        order = ToGates(self.generation, message)
        for agent in self.agents.values():
            if agent.is_connected:
                agent.send(order)

    # Forming a generation

    def _consider(self) -> None:
        """Something changed: is it time for the next thing?"""
        if self.phase == "gathering":
            self._gather()
        elif self.phase in ("clearing", "finishing", "stopping") and self._all_cleared():
            self._next()
        elif self.phase == "halting" and self.meetings.are_settled:
            self._go_on()
        elif self.phase == "running" and self._could_grow():
            self.reform("more machines have joined")

    def _gather(self) -> None:
        if any(not agent.is_connected for agent in self.agents.values()):
            return  # its tasks may still be alive: never two gangs at once
        if not self.wanted.has_room(self.agents.values()):
            return
        placement = self._place()
        if self.wanted.is_complete(placement):
            self._form(placement)
        elif self.wanted.suffices(placement) and not self.loop.expects("patience"):
            self.loop.after("patience", _PATIENCE, self._form_with_who_is_there)

    def _form_with_who_is_there(self) -> None:
        if self.phase == "gathering":
            placement = self._place()
            if self.wanted.suffices(placement):
                self._form(placement)

    def _place(self) -> Placement:
        return self.wanted.place(self.agents.values())

    def _could_grow(self) -> bool:
        if len(self.tasks) >= self.wanted.total:
            return False
        placement = self._place()
        return len(placement.tasks) > len(self.tasks) and self.wanted.suffices(placement)

    def _form(self, placement: Placement) -> None:
        if not self.leads():
            return  # nor are the checkpoints ours any more
        self.loop.cancel("patience")
        self.loop.cancel("rendezvous")
        self.loop.cancel("stall")
        known = (one.status.generation for one in self.agents.values() if one.status is not None)
        credible = (number for number in known if number <= self.generation + _AHEAD)
        self.generation = max(self.generation, *credible) + 1  # a new leader may not remember the last one
        self.phase = "running"
        self.tasks, self.places = placement.tasks, placement.places
        self.outcomes, self.launches = {}, {}
        self.meetings.form(task.name for task in self.tasks if task.is_trainer)
        self.blame, self.refusal, self.is_forgiven, self.progressed = None, None, False, False
        self.formed_at = time.monotonic()
        self.thinning = Thinning(self.formed_at)
        self.record.emit("generation", generation=self.generation, tasks=[task.name for task in self.tasks])
        gang = Gang(
            run=self.spec.run,
            generation=self.generation,
            tasks=self.tasks,
            addresses=placement.addresses,
            restarts=self.record.state.restarts,
            max_restarts=self.spec.limits.restarts,
            seed=self.spec.seed,
            machines=[names for names in self.places.values() if names],
            checkpoints=self._take_over(),
        )
        self._wish(Run(gang, self.places))

    def _take_over(self) -> list[str]:
        folder = self.spec.folders.get("checkpoints", "")
        names, trouble = transfer.take_over(folder, self.spec.run, self.generation)
        if trouble is not None:
            self.record.emit("note", text=f"older generations could not be shut out of {trouble}")
        return names

    def _wish(self, wish: Wish) -> None:
        self.desired = wish
        for agent in list(self.agents.values()):
            self._wish_to(agent)

    def _wish_to(self, agent: Agent) -> None:
        if agent.is_connected:
            agent.send(self.desired)
            if isinstance(self.desired, Over):
                self.informed.add(agent.name)

    def _on_nobody_came(self) -> None:
        missing = self.wanted.missing(self._place())
        some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        limit = self.spec.limits.rendezvous
        self._end("failed", 1, f"after limits.rendezvous ({limit:g} s) there is still no machine for {some}")

    # Watching it

    def _on_report(self, event: Message) -> None:
        self.reports = True
        step = event.get("step")
        if isinstance(step, (int, float)) and step > self.best_step:
            self.best_step = step
            self.progressed = True
        if self.spec.limits.stall is not None and self.phase == "running":
            self.loop.after("stall", self.spec.limits.stall, self._on_stall)
        is_last = bool(event.pop("last", False))
        if self.thinning.admits(event, is_last, time.monotonic()):
            self.record.emit("report", **event)

    def _on_stall(self) -> None:
        if self.phase == "running":
            self.blame = f"no task reported a step for limits.stall ({self.spec.limits.stall:g} s)"
            self._end_generation(stacks=True)

    def _judge(self, outcome: Outcome) -> None:
        before = self.outcomes.get(outcome.name)
        self.outcomes[outcome.name] = outcome
        is_news = before is None or before.is_alive or outcome.launch > before.launch
        if outcome.is_alive or not is_news or self.phase not in ("running", "halting"):
            return
        task = next(one for one in self.tasks if one.name == outcome.name)
        if outcome.code == 0:
            if task.is_leader:
                self._finish()
            return
        if self.phase == "halting":
            if task.is_trainer and not outcome.ours:
                self._go_on()  # the others will miss it
            return
        if restarts_with(task, self.tasks) == (task,) and len(self.tasks) > 1:
            self._restart_alone(task, outcome)
        else:
            self._end_generation()

    def _restart_alone(self, task: Task, outcome: Outcome) -> None:
        budget = self.alone.setdefault(task.name, Budget(self.spec.limits.restarts))
        refusal = budget.refuses(self._loss(outcome))
        if refusal is None:
            self.record.emit("restart", left=budget.left, alone=True, **culprit.describe(outcome))
            self.launches[task.name] = outcome.launch + 1
            if task.is_trainer:
                self.meetings.start_again(task.name)
            assert isinstance(self.desired, Run)
            gang = replace(self.desired.gang, checkpoints=self._take_over())
            self._wish(replace(self.desired, gang=gang, launches=dict(self.launches)))
        elif task.role == "evaluator":
            text = f"{task.name} is not started again: {refusal}; training goes on without it"
            self.record.emit("note", text=text)
        else:
            self.refusal = f"{task.name} starts again alone, and {refusal}"
            self._end_generation()

    def _finish(self) -> None:
        if self.phase == "halting":
            self.stopped, self.is_moving = None, False  # there is nothing left to stop
        self.phase = "finishing"
        self._close_meetings()
        self.loop.cancel("stall")
        self._wish(Finish(self.generation))

    def _end_generation(self, stacks: bool = False) -> None:
        self.phase = "clearing"
        self._close_meetings()
        self.loop.cancel("stall")
        self._wish(Clear(self.generation, stacks, self.wanted.sizes))

    def _resize(self, why: str) -> None:
        """Who waits or clears away is told; who runs goes on until there is room for all that are wanted."""
        if self.phase != "running":
            if isinstance(self.desired, (Clear, Halt)):
                self._wish(replace(self.desired, want=self.wanted.sizes))
            self._consider()
        elif len(self.tasks) != self.wanted.total and (
            self.spec.is_alone or self.wanted.is_complete(self._place())
        ):
            self.reform(why)  # else what was wanted before never formed, and is taken back

    def reform(self, why: str) -> None:
        """Have the gang leave at a step, if it can, and form anew: nobody's failure."""
        self.blame, self.is_forgiven = why, True
        if self.phase == "running":
            self._halt(self._end_generation)
        self._consider()

    # What comes after a generation

    def _all_cleared(self) -> bool:
        return all(
            agent.status is None or agent.status.cleared >= self.generation
            for agent in self.agents.values()
            if agent.is_connected
        )

    def _next(self) -> None:
        if self.is_moving:
            self.phase, self.code = "over", PREEMPTED  # the others wait for who takes over
        elif self.stopped is not None:
            self._end(*self.stopped)
        elif self.phase == "finishing":
            self._end("succeeded", 0)
        else:
            self._next_generation()

    def _next_generation(self) -> None:
        for agent in self.agents.values():  # what they told while they were clearing
            self.outcomes.update({outcome.name: outcome for outcome in self._outcomes_of(agent)})
        guilty = None if self.is_forgiven else culprit.find(self.outcomes.values())
        told = culprit.describe(guilty) if guilty else {}
        if self.blame:
            told["reason"] = self.blame
        if not self.is_forgiven:
            refusal = self.refusal or self.budget.refuses(self._loss(guilty))
            if refusal is not None:
                code = culprit.exit_code(guilty)
                self._end("failed", code, told.pop("reason", ""), refusal=refusal, **told)
                return
        self.phase = "gathering"
        self.record.emit("restart", left=self.budget.left, forgiven=self.is_forgiven, **told)
        self.loop.after("rendezvous", self.spec.limits.rendezvous, self._on_nobody_came)
        self._gather()

    def _loss(self, outcome: Outcome | None) -> Loss:
        return Loss(
            signature=culprit.signature(outcome) if outcome else str(self.blame),
            signalled=outcome is None or outcome.signal is not None,
            progressed=self.progressed,
            reports=self.reports,
            lived=time.time() - outcome.began if outcome else time.monotonic() - self.formed_at,
        )

    def _end(self, state: str, code: int, reason: str = "", **fields: Any) -> None:
        if self.phase == "over":
            return
        self.phase = "over"
        self.last_things(state, lambda: self._give_verdict(state, code, reason, fields))

    def _give_verdict(self, state: str, code: int, reason: str, fields: Message) -> None:
        self.record.end(state, code, **({"reason": reason} if reason else {}), **fields)
        self.code = code
        self._wish(Over(self.generation, code))
