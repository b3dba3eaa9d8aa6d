"""The deciding half of the leading agent: turns what agents, tasks, users and signals report into phases.

Agents join, report statuses and events, and leave; users and machines ask for an end. Each of these leads to
a transition of `phase_machine`. Every agent that reconnects gets the current wish again, so a cut connection
loses nothing: both sides compare. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.phase_machine import PhaseMachine
from oarlock.agent.lead.phases import culprit
from oarlock.agent.lead.phases.aftermath import Verdict
from oarlock.agent.lead.phases.progress import STALL
from oarlock.agent.lead.phases.report_sampling import ReportSampling
from oarlock.agent.lead.phases.restart_budget import Budget
from oarlock.agent.protocol import failure_fields
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.timing import LOST
from oarlock.agent.protocol.wishes import Made, Part, ToGates
from oarlock.run.best_scores import is_score
from oarlock.run.cluster import Task, ingest_name, restarts_with
from oarlock.run.contract import PREEMPTED
from oarlock.run.run_events import Event

STUCK = "stuck"  # a deadline
_STOPPED_BY_USER = 130


class Conductor:
    """Takes in what agents, users and signals report; the phase machine decides on the phase."""

    def __init__(self, machine: PhaseMachine) -> None:
        self.machine = machine
        self.loop = machine.loop
        self.spec = machine.spec
        self.record = machine.record
        self.roster = machine.roster
        self._ingest_sampling = ReportSampling(self.loop.now())
        self._gpu_sampling = ReportSampling(self.loop.now())
        self.alone: dict[str, Budget] = {}  # the budgets of tasks that restart alone
        self.is_stuck = False  # the record has a `problem` that is not resolved yet
        self.reached: dict[str, float] = {}  # task -> the run's best step at its last restart alone

    # Agents

    def join(self, agent: Agent) -> str | None:
        """Seat the agent and send it the current wish. Returns None, or the reason for a refusal."""
        machine = self.machine
        refusal = self.roster.admit(agent)
        if refusal is not None:
            return refusal
        self.loop.cancel(_loss_of(agent))
        hosted = ", ".join(machine.generation.trained_on(agent.name))
        if hosted and machine.phase == "running" and not agent.status:
            machine.generation.blame = (
                f"{agent.name} was lost, which hosted {hosted}; another has taken its place"
            )
            self._end_without(agent)
        elif hosted and machine.phase == "halting" and not agent.status:
            machine.end_halt()
        self.roster.repeat_to(agent)
        if machine.agreement.current is not None and machine.phase in ("running", "halting"):
            agent.send(ToGates(machine.number, machine.agreement.current.message()))
        if machine.generation.made and machine.phase in ("running", "halting", "scoring"):
            agent.send(Made(machine.number, machine.generation.made))
        return None

    def hear(self, agent: Agent, status: Status) -> None:
        """Take in a changed status of an agent."""
        if agent not in self.roster:
            return
        agent.status = status
        machine = self.machine
        outcomes = self.roster.outcomes_of(agent, machine.generation)
        machine.scoring.hear(outcomes)
        if status.generation == machine.number and machine.phase in ("running", "halting", "scoring"):
            ended = [outcome.name for outcome in outcomes if not outcome.is_alive]
            machine.agreement.hear(machine.generation.tasks_on(agent.name), status.gates, ended)
            self._on_made(agent, status)
            for outcome in outcomes:
                self._on_outcome(outcome)
        if status.leaving:
            self._on_leaving(agent)
        machine.advance()

    def hear_event(self, agent: Agent, event: Event) -> None:
        """Record an event of an agent or of one of its tasks."""
        if agent not in self.roster:
            return  # another agent has replaced it
        is_ingest = event.get("task") == self._ingest_task(agent)
        placed = self.machine.generation.tasks_on(agent.name)
        if "task" in event and not is_ingest and event["task"] not in placed:
            return  # from an earlier generation, or about a task of another agent
        event = {**event, "t": min(event["t"], self.loop.time())}  # another machine's clock may be ahead
        kind = event.pop("kind")
        if kind == "ready" and not self.spec.is_alone:
            event["on"] = agent.name
        if kind == "report" and is_ingest:
            self._on_ingest_report(event)
        elif kind == "report":
            self._on_report(event)
        elif kind == "alive":
            self._on_alive()
        elif kind == "never_ready":
            self._on_never_ready(agent, event)
        elif kind != "gpu" or self._gpu_sampling.admits(event, False, self.loop.now()):
            self.record.emit(kind, **event)

    def leave(self, agent: Agent, why: str, for_good: bool = False) -> None:
        """Note that an agent's connection is gone. It may reconnect; its tasks may live for FENCE seconds."""
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
        hosted = ", ".join(generation.trained_on(agent.name))
        if generation.tasks_on(agent.name) and not hosted and machine.phase in ("running", "scoring"):
            # Only an evaluator was lost: it restarts on the next agent in this seat, and training continues.
            self.record.emit("note", text=f"{agent.name} is gone ({why}); training continues without it")
        if hosted and machine.phase == "running":
            if for_good:
                generation.end_without_failure(f"{agent.name} left: {why}")
            else:
                generation.blame = f"lost contact with {agent.name} ({why}), which hosted {hosted}"
            self._end_without(agent)
        elif hosted and for_good and machine.phase == "clearing" and generation.blame is None:
            generation.end_without_failure(f"{agent.name} left: {why}")
        elif hosted and machine.phase == "halting":
            machine.end_halt()
        machine.advance()

    def _end_without(self, agent: Agent) -> None:
        """End the generation of a lost agent: its tasks get other addresses. If the other tasks can do
        without them for a while, as parameter servers can without a worker, they save first."""
        machine, tasks = self.machine, self.machine.generation.tasks
        lost = [machine.generation.task(name) for name in machine.generation.tasks_on(agent.name)]
        if any(task.is_leader or restarts_with(task, tasks) != (task,) for task in lost):
            machine.end_generation()
        else:
            machine.halt(machine.end_generation)

    def _on_leaving(self, agent: Agent) -> None:
        """Its machine was asked to leave. If the gang cannot halt, the agent ends its tasks at once."""
        machine = self.machine
        hosted = machine.generation.trained_on(agent.name)
        if machine.phase == "running" and hosted and machine.agreement.is_possible:
            machine.generation.end_without_failure(f"{agent.name} left: it was asked to leave")
            machine.halt(machine.end_generation)
        elif machine.phase != "halting":
            agent.send(Part(machine.number))

    def _ingest_task(self, agent: Agent) -> str | None:
        if self.spec.ingest is None:
            return None
        return ingest_name(agent.name, agent.is_leading, self.spec.ingest.where)

    def _on_never_ready(self, agent: Agent, event: Event) -> None:
        """A machine cannot run tasks. That ends the run only if it has tasks there, and none of them runs."""
        machine = self.machine
        is_at_work = any(outcome.is_alive for outcome in self.roster.outcomes_of(agent, machine.generation))
        why = event["text"]
        is_spare = machine.phase != "gathering" and not machine.generation.trained_on(agent.name)
        if is_at_work or is_spare or machine.phase in ("scoring", "finishing", "stopping"):
            text = why.removeprefix(f"{agent.name}: ")  # pods add their name: it may end the run
            self.record.emit("note", text=f"{agent.name} can run no tasks: {text}")
        else:
            fields = {name: event[name] for name in ("task", "type", "message", "where") if event.get(name)}
            machine.end(Verdict("failed", event.get("code") or 1, why), **fields)

    # Tasks

    def _on_ingest_report(self, report: Event) -> None:
        """Record the progress of an ingest. It is not training progress, so no deadline moves."""
        is_last = bool(report.pop("last", False))
        if self._ingest_sampling.admits(report, is_last, self.loop.now()):
            self.record.emit("report", **report)

    def _on_made(self, agent: Agent, status: Status) -> None:
        """The leader task has made folders: notify all tasks that wait for them."""
        generation = self.machine.generation
        leads = any(generation.task(name).is_leader for name in generation.tasks_on(agent.name))
        if leads and not status.made <= generation.made:
            generation.made |= status.made
            self.roster.order(Made(generation.number, generation.made))

    def _on_report(self, report: Event) -> None:
        if self.machine.phase == "running" and not is_score(report):
            self.machine.progress.expect_after(report)
        if self.machine.progress.add(report, self.machine.generation):
            self.record.emit("report", **report)

    def _on_alive(self) -> None:
        """A task somewhere reports, prints or computes. If none does for limits.stall, record a problem."""
        limit = self.spec.limits.stall
        if self.is_stuck:
            self.is_stuck = False
            self.record.emit("problem")
        if limit is not None:
            self.loop.after(STUCK, limit, self._on_stuck)

    def _on_stuck(self) -> None:
        if self.machine.phase != "running" or self.loop.expects(STALL):
            return  # a program that reports is restarted instead
        self.is_stuck = True
        limit = self.spec.limits.stall
        text = f"nothing happens: for {limit:g} s no task has reported, printed or computed"
        fix = f"see where each task is: oarlock stacks {self.spec.run}"
        self.record.emit("problem", text=text, fix=fix)

    def _on_outcome(self, outcome: Outcome) -> None:
        """A task runs, has finished its work, or has failed. A failure restarts the task or the gang."""
        machine, generation = self.machine, self.machine.generation
        before = generation.outcomes.get(outcome.name)
        generation.take([outcome])
        is_news = before is None or before.is_alive or outcome.launch > before.launch
        if outcome.is_alive or not is_news or machine.phase not in ("running", "halting", "scoring"):
            return
        task = generation.task(outcome.name)
        if outcome.code == 0:
            machine.scoring.give_up(task.name)
            if task.is_leader:
                machine.finish()
        elif machine.phase == "scoring":
            if task.role == "evaluator":
                self._restart_alone(task, outcome)
        elif machine.phase == "halting":
            if task.name in machine.agreement.members and not outcome.ours:
                machine.end_halt()  # the others would wait for it forever
        elif restarts_with(task, generation.tasks) == (task,) and len(generation.tasks) > 1:
            self._restart_alone(task, outcome)
        else:
            machine.end_generation()

    def _restart_alone(self, task: Task, outcome: Outcome) -> None:
        machine = self.machine
        budget = self.alone.setdefault(task.name, Budget(self.spec.limits.restarts))
        loss = machine.generation.loss(outcome, machine.progress.reports, self.loop.now(), self.loop.time())
        best = machine.progress.best_step  # the generation may have progressed before its last restart
        progressed = loss.progressed and best > self.reached.get(task.name, -1)
        self.reached[task.name] = best
        if task.role == "evaluator":
            progressed = bool(outcome.scores)  # training steps are not the evaluator's progress
        loss = replace(loss, progressed=progressed)
        refusal = culprit.refusal(outcome) or budget.refuses(loss)
        if refusal is None:
            fields = {**failure_fields.describe(outcome), **budget.event_fields}
            self.record.emit("restart", left=budget.left, alone=True, **fields)
            machine.agreement.start_again(task.name)
            machine.relaunch(task.name, outcome.launch + 1)
        elif task.role == "evaluator":
            machine.scoring.give_up(task.name)
            text = f"{task.name} is not restarted: {refusal}; training continues without it"
            self.record.emit("note", text=text)
        else:
            machine.generation.refusal = f"{task.name} restarts alone, with a budget of its own: {refusal}"
            machine.end_generation()

    # Users and the machine

    def on_user_stop(self) -> None:
        """Stop with grace. A second request stops without grace."""
        machine = self.machine
        if machine.phase == "stopping" or (machine.phase == "halting" and machine.stopped is not None):
            machine.stop_now()
        else:
            machine.stop(Verdict("stopped", _STOPPED_BY_USER, "stopped by the user"))

    def on_preempted(self) -> None:
        """This machine was asked to leave. If it will be replaced, the run does not end."""
        self.machine.is_moving = self.spec.is_replaced
        self.machine.stop(Verdict("stopped", PREEMPTED, "the machine asked it to leave (SIGTERM)"))

    def leave_now(self) -> None:
        """Leave without grace."""
        self.on_preempted()
        if self.machine.phase != "over":
            self.machine.stop_now()

    def give_up(self, why: str) -> None:
        """End before the run has begun. A run whose record already has a verdict keeps it."""
        state = self.record.state
        if state.is_final:
            self.machine.repeat_verdict(state.code or 0)
        else:
            self.machine.end(Verdict("failed", 1, why))


def _loss_of(agent: Agent) -> str:
    """The name of the deadline after which a disconnected agent is given up."""
    return f"loss of {agent.name}"
