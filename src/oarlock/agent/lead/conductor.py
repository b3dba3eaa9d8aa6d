"""The deciding half of the leading agent: what agents, tasks, users and signals say, turned into phases.

Agents join, report statuses and events, and leave; users and machines ask for an end. What follows from that
is one of the transitions of `phase_machine`. A wish is repeated to every agent that connects again, so a cut
network loses nothing: both sides compare.
"""

from __future__ import annotations

from oarlock.agent.lead import culprit
from oarlock.agent.lead.aftermath import Verdict
from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.lead.restart_budget import Budget
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.status import Status
from oarlock.agent.protocol.timing import LOST
from oarlock.agent.protocol.wishes import Part, ToGates
from oarlock.run.cluster import Task, restarts_with
from oarlock.run.contract import PREEMPTED
from oarlock.run.events import Event

_STOPPED_BY_USER = 130


class Conductor:
    """Hears agents, users and signals; the machine decides on the phase."""

    def __init__(self, machine: PhaseMachine) -> None:
        self.machine = machine
        self.loop = machine.loop
        self.spec = machine.spec
        self.record = machine.record
        self.roster = machine.roster
        self.alone: dict[str, Budget] = {}  # of tasks that restart alone

    # Agents

    def join(self, agent: Agent) -> str | None:
        """Seat the agent and repeat to it what is wanted. None, or why it is refused."""
        machine = self.machine
        refusal = self.roster.admit(agent)
        if refusal is not None:
            return refusal
        self.loop.cancel(_loss_of(agent))
        hosted = ", ".join(machine.generation.tasks_on(agent.name))
        if hosted and machine.phase == "running" and not agent.status:
            machine.generation.blame = (
                f"{agent.name} was lost, which hosted {hosted}; another has taken its place"
            )
            machine.end_generation()
        elif hosted and machine.phase == "halting" and not agent.status:
            machine.end_halt()
        self.roster.repeat_to(agent)
        if machine.agreement.current is not None and machine.phase in ("running", "halting"):
            agent.send(ToGates(machine.number, machine.agreement.current.message()))
        return None

    def hear(self, agent: Agent, status: Status) -> None:
        """Take in an agent's status, which has changed."""
        if agent not in self.roster:
            return
        agent.status = status
        machine = self.machine
        if status.generation == machine.number and machine.phase in ("running", "halting"):
            outcomes = self.roster.outcomes_of(agent, machine.generation)
            ended = [outcome.name for outcome in outcomes if not outcome.is_alive]
            machine.agreement.hear(machine.generation.tasks_on(agent.name), status.gates, ended)
            for outcome in outcomes:
                self._on_outcome(outcome)
        if status.leaving:
            self._on_leaving(agent)
        machine.advance()

    def hear_event(self, agent: Agent, event: Event) -> None:
        """Take in an event of an agent or one of its tasks, for the record."""
        if agent not in self.roster:
            return  # another has taken its place
        if "task" in event and event["task"] not in self.machine.generation.tasks_on(agent.name):
            return  # of an earlier generation, or of another agent's task
        event = {**event, "t": min(event["t"], self.loop.time())}  # another machine's clock may be ahead
        kind = event.pop("kind")
        if kind == "ready" and not self.spec.is_alone:
            event["on"] = agent.name
        if kind == "report":
            self._on_report(event)
        elif kind == "never_ready":
            self._on_never_ready(agent, event["text"])
        else:
            self.record.emit(kind, **event)

    def leave(self, agent: Agent, why: str, for_good: bool = False) -> None:
        """An agent's connection is gone. It may come back; its tasks may live for FENCE seconds."""
        if agent not in self.roster or self.machine.phase == "over":
            return
        agent.is_connected = False
        if for_good:
            self._on_lost(agent, why, for_good)
        else:
            self.loop.after(_loss_of(agent), LOST, lambda: self._on_lost(agent, why))

    def _on_lost(self, agent: Agent, why: str, for_good: bool = False) -> None:
        machine, generation = self.machine, self.machine.generation
        self.roster.remove(agent)
        hosted = ", ".join(generation.tasks_on(agent.name))
        if hosted and machine.phase == "running":
            if for_good:
                generation.end_without_failure(f"{agent.name} left: {why}")
            else:
                generation.blame = f"lost contact with {agent.name} ({why}), which hosted {hosted}"
            machine.end_generation()
        elif hosted and for_good and machine.phase == "clearing" and generation.blame is None:
            generation.end_without_failure(f"{agent.name} left: {why}")
        elif hosted and machine.phase == "halting":
            machine.end_halt()
        machine.advance()

    def _on_leaving(self, agent: Agent) -> None:
        """Its machine was asked to leave. Where the gang cannot halt, the agent ends its tasks at once."""
        machine = self.machine
        hosted = machine.generation.tasks_on(agent.name)
        if machine.phase == "running" and hosted and machine.agreement.is_possible:
            machine.generation.end_without_failure(f"{agent.name} left: it was asked to leave")
            machine.halt(machine.end_generation)
        elif machine.phase != "halting":
            agent.send(Part(machine.number))

    def _on_never_ready(self, agent: Agent, why: str) -> None:
        """That ends the run if the run waits for this machine: not if tasks run there, or it is a spare."""
        machine = self.machine
        is_at_work = any(outcome.is_alive for outcome in self.roster.outcomes_of(agent, machine.generation))
        is_spare = machine.phase != "gathering" and not machine.generation.tasks_on(agent.name)
        if is_at_work or is_spare:
            self.record.emit("note", text=f"{agent.name} can run no tasks: {why}")
        else:
            machine.end(Verdict("failed", 1, why))

    # Their tasks

    def _on_report(self, report: Event) -> None:
        if self.machine.phase == "running":
            self.machine.progress.expect_after(report)
        if self.machine.progress.add(report, self.machine.generation):
            self.record.emit("report", **report)

    def _on_outcome(self, outcome: Outcome) -> None:
        """A task runs, or has ended: with the work done, or with a failure that restarts it or the gang."""
        machine, generation = self.machine, self.machine.generation
        before = generation.outcomes.get(outcome.name)
        generation.take([outcome])
        is_news = before is None or before.is_alive or outcome.launch > before.launch
        if outcome.is_alive or not is_news or machine.phase not in ("running", "halting"):
            return
        task = generation.task(outcome.name)
        if outcome.code == 0:
            if task.is_leader:
                machine.finish()
        elif machine.phase == "halting":
            if task.is_trainer and not outcome.ours:
                machine.end_halt()  # the others wait for it in vain
        elif restarts_with(task, generation.tasks) == (task,) and len(generation.tasks) > 1:
            self._restart_alone(task, outcome)
        else:
            machine.end_generation()

    def _restart_alone(self, task: Task, outcome: Outcome) -> None:
        machine = self.machine
        budget = self.alone.setdefault(task.name, Budget(self.spec.limits.restarts))
        loss = machine.generation.loss(outcome, machine.progress.reports, self.loop.now(), self.loop.time())
        refusal = culprit.refusal(outcome) or budget.refuses(loss)
        if refusal is None:
            fields = {**culprit.describe(outcome), **budget.event_fields}
            self.record.emit("restart", left=budget.left, alone=True, **fields)
            if task.is_trainer:
                machine.agreement.start_again(task.name)
            machine.relaunch(task.name, outcome.launch + 1)
        elif task.role == "evaluator":
            text = f"{task.name} is not started again: {refusal}; training goes on without it"
            self.record.emit("note", text=text)
        else:
            machine.generation.refusal = f"{task.name} restarts alone, with a budget of its own: {refusal}"
            machine.end_generation()

    # Users and the machine

    def on_user_stop(self) -> None:
        """Stop with grace; asked a second time, without any."""
        machine = self.machine
        if machine.phase == "stopping" or (machine.phase == "halting" and machine.stopped is not None):
            machine.stop_now()
        else:
            machine.stop(Verdict("stopped", _STOPPED_BY_USER, "stopped by the user"))

    def on_preempted(self) -> None:
        """This machine was asked to leave. Where it is replaced, that ends no run."""
        self.machine.is_moving = self.spec.is_replaced
        self.machine.stop(Verdict("stopped", PREEMPTED, "the machine asked it to leave (SIGTERM)"))

    def leave_now(self) -> None:
        """The same, without any grace."""
        self.on_preempted()
        if self.machine.phase != "over":
            self.machine.stop_now()

    def give_up(self, why: str) -> None:
        """End without having begun. A run whose record holds a verdict keeps that."""
        state = self.record.state
        if state.is_final:
            self.machine.repeat_verdict(state.code or 0)
        else:
            self.machine.end(Verdict("failed", 1, why))


def _loss_of(agent: Agent) -> str:
    """The deadline after which a cut-off agent is given up."""
    return f"loss of {agent.name}"
