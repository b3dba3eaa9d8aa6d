"""The transitions from one phase of a run to the next; `phases/phase_table.py` has the phases. Pure.

The machine reaches hosts only through wishes; `collaborators` lists what else it needs. `conductor` feeds it
what agents, users and signals report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oarlock.agent.lead.agents.placement import Placement
from oarlock.agent.lead.agents.target_size import TargetSize
from oarlock.agent.lead.phases import aftermath
from oarlock.agent.lead.phases.aftermath import Fail, Verdict
from oarlock.agent.lead.phases.collaborators import Journal, SeatOrder, Surroundings
from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.lead.phases.phase_table import TRANSITIONS, Phase
from oarlock.agent.lead.phases.progress import GangProgress
from oarlock.agent.lead.phases.restart_budget import Budget
from oarlock.agent.lead.phases.scoring import Scoring
from oarlock.agent.lead.roster import Roster
from oarlock.agent.lead.step_agreement import StepAgreement
from oarlock.agent.net.deadlines import Action, Deadlines
from oarlock.agent.net.dropped_messages import DroppedMessages
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.wishes import Clear, Finish, Halt, Over, RunTasks, Stop, ToGates
from oarlock.run.cluster import in_step
from oarlock.run.contract import PREEMPTED

# Deadlines
RUNTIME, RENDEZVOUS, MORE_AGENTS, HALT = "runtime", "rendezvous", "more agents", "halt"

_PATIENCE = 5.0  # seconds that an elastic gang of the least size waits for more members


class PhaseMachine:
    """The run's phase. `after`: the newest generation in the snapshot store; the first one here is higher."""

    def __init__(
        self,
        loop: Deadlines,
        spec: Spec,
        record: Journal,
        seats: SeatOrder,
        surroundings: Surroundings,
        after: int = 0,
    ) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        self.surroundings = surroundings
        self.phase: Phase = "gathering"
        self.generation = Generation(max(record.state.generation, after), loop.now())
        self.dropped = DroppedMessages(loop, lambda text: record.emit("note", text=text))
        self.roster = Roster(seats, Clear(self.number), self.dropped)
        # A leading agent that takes over keeps the size to which the run was last scaled.
        self.target = TargetSize(spec, record.state.workers if spec.is_replaced else None)
        self.budget = Budget(spec.limits.restarts)
        self.progress = GangProgress(loop, spec.limits.stall, record.state, self._on_stall)
        self.agreement = StepAgreement(loop, lambda message: self.roster.order(ToGates(self.number, message)))
        held = surroundings.checkpoints
        self.scoring = Scoring(loop, spec, record, held, lambda: self._finish(Stop(self.number)))
        self.stopped: Verdict | None = None  # the verdict of a stop; it is given once no task runs
        self.is_moving = False  # this machine leaves and the run continues elsewhere: there is no verdict
        self.code: int | None = None  # the exit code, once nothing is left to do
        self._after_halt: Action = self.end_generation
        self._halt_ends: float | None = None  # when the grace of the current halt is over

    @property
    def number(self) -> int:
        """The number of the current generation."""
        return self.generation.number

    def start(self) -> None:
        """Set the limits of the runtime and of the first rendezvous."""
        if (limit := self.spec.limits.runtime) is not None:
            self.loop.after(RUNTIME, limit, lambda: self.stop(aftermath.out_of_time(limit)))
        self.loop.after(RENDEZVOUS, self.spec.limits.rendezvous, self._on_rendezvous)

    def advance(self) -> None:
        """Leave the phase if its exit condition holds. Call this after every change."""
        if self.phase == "gathering":
            self._gather()
        elif self.phase in ("clearing", "finishing", "stopping"):
            if self.roster.have_all_cleared(self.number):
                self._after_clearing()
        elif self.phase == "halting" and self.agreement.is_settled:
            self.end_halt()
        elif self.phase == "scoring" and not self.scoring.awaited:
            self._finish(Finish(self.number))
        elif self.phase == "running" and self.target.could_grow(len(self.generation.tasks), self.roster):
            self.reform("more machines have joined")

    def _enter(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"a run that is {self.phase} cannot be {phase} next")
        self.phase = phase

    # Gathering and running

    def _gather(self) -> None:
        if not self.roster.are_all_connected:
            return  # tasks of the lost agent may still be alive: never two gangs at once
        if not self.target.has_room(self.roster):
            return
        placement = self.target.place(self.roster)
        if self.spec.is_ingest_alone and self.target.suffices(placement):
            self.end(Verdict("succeeded", 0))
        elif self.target.is_complete(placement):
            self._form(placement)
        elif self.target.suffices(placement) and not self.loop.expects(MORE_AGENTS):
            self.loop.after(MORE_AGENTS, _PATIENCE, self._form_smaller)

    def _form_smaller(self) -> None:
        """Form an elastic gang of the agents that have joined so far."""
        placement = self.target.place(self.roster)
        if self.phase == "gathering" and self.target.suffices(placement):
            self._form(placement)

    def _form(self, placement: Placement) -> None:
        if not self.surroundings.is_leading():
            return  # another agent leads, and owns the checkpoints
        self.loop.cancel(MORE_AGENTS)
        self.loop.cancel(RENDEZVOUS)
        self._enter("running")
        number = self.roster.newest_generation(self.number) + 1  # breaks ties between equal steps
        self.generation = Generation(number, self.loop.now(), placement.tasks, placement.places)
        self.scoring.form()
        self.agreement.form(task.name for task in in_step(placement.tasks))
        self.record.emit("generation", generation=number, tasks=[task.name for task in placement.tasks])
        checkpoints, files = self._take_over_checkpoints(), self.surroundings.written_files()
        gang = placement.gang(self.spec, number, self.record.state.restarts, checkpoints, files)
        scored = self.surroundings.checkpoints.scored()
        self.roster.make(RunTasks(replace(gang, scored=scored), placement.places))

    def relaunch(self, task: str, launch: int) -> None:
        """Have one task restart, alone, in the running generation."""
        wish = self.roster.wish
        assert isinstance(wish, RunTasks), "a task restarts alone only while its gang runs"
        self.generation.launches[task] = launch
        held, saves = self.surroundings.checkpoints, self.generation.task(task).is_leader
        names = self._take_over_checkpoints() if saves else held.names()  # the leader may be saving right now
        gang = replace(wish.gang, checkpoints=names, scored=held.scored())
        self.roster.make(replace(wish, gang=gang, launches=dict(self.generation.launches)))

    def _take_over_checkpoints(self) -> list[str]:
        names, trouble = self.surroundings.take_over_checkpoints(self.number)
        if trouble is not None:
            self.record.emit("note", text=f"could not fence off older generations in {trouble}")
        return names

    def _on_rendezvous(self) -> None:
        limit = self.spec.limits.rendezvous
        if self.roster.is_preparing:
            self.loop.after(RENDEZVOUS, limit, self._on_rendezvous)
        else:
            self.end(aftermath.no_machine(limit, self.target.missing(self.roster)))

    # Halting

    def halt(self, then: Action) -> None:
        """Have all trainers save and leave before the same step, if they can. `then` is called after that."""
        self._after_halt = then
        if self.phase == "halting":
            return
        self._halt_ends = None
        if self.phase != "running" or not self.agreement.is_possible:
            then()
            return
        self._enter("halting")
        grace = self.spec.limits.grace
        self._halt_ends = self.loop.now() + grace
        self.progress.expect_none()
        self.loop.after(HALT, grace, self.end_halt)
        self.roster.make(Halt(self.number))
        self.agreement.halt()

    def end_halt(self) -> None:
        """End the halt: all trainers have left, or waiting longer is useless."""
        self._close_agreement()
        if self.phase == "halting":
            self._after_halt()

    def _close_agreement(self) -> None:
        self.loop.cancel(HALT)
        self.agreement.close()

    # Ending a generation

    def end_generation(self, stacks: bool = False) -> None:
        """Have all hosts clear, after a stack dump if `stacks`. Then the run restarts or gives up."""
        self._enter("clearing")
        self._close_agreement()
        self.progress.expect_none()
        self.roster.make(Clear(self.number, stacks, self.target.sizes))

    def reform(self, why: str) -> None:
        """Have the gang leave at a step boundary, if it can, and form again. This is no failure."""
        self.generation.end_without_failure(why)
        if self.phase == "running":
            self.halt(self.end_generation)
        self.advance()

    def finish(self) -> None:
        """The leader task has ended with 0: nothing is left to stop, but checkpoints may be left to score."""
        self._close_agreement()
        self.progress.expect_none()
        wish = self.roster.wish
        is_awaited = isinstance(wish, RunTasks) and self.scoring.begin(self.generation)
        if self.phase == "halting":
            self.stopped, self.is_moving = None, False
        if not is_awaited or not isinstance(wish, RunTasks):
            return self._finish(Finish(self.number))
        self._enter("scoring")
        self.scoring.wait()
        return self.roster.make(replace(wish, is_done=True))

    def _finish(self, wish: Finish | Stop) -> None:
        self.scoring.end()
        self._enter("finishing")
        self.roster.make(wish)

    def stop(self, verdict: Verdict) -> None:
        """Halt if possible, stop all tasks, then give this verdict. Only the first call counts."""
        if self.phase in ("stopping", "over") or self.stopped is not None:
            return
        if self.phase == "scoring":  # training is done: stopping costs only a score
            self.scoring.end()
            verdict = Verdict("succeeded", 0, f"without the last scores: {verdict.reason}")
        self.stopped = verdict
        self.record.emit("stop", reason=verdict.reason)
        self.halt(self._stop_tasks)

    def stop_now(self) -> None:
        """Stop all tasks without grace."""
        self._close_agreement()
        self._enter("stopping")
        self.roster.make(Stop(self.number, now=True))

    def _stop_tasks(self) -> None:
        """Stop all tasks, with what is left of the grace: a halt in vain may have used it up."""
        self._enter("stopping")
        grace = self.spec.limits.grace if self._halt_ends is None else self._halt_ends - self.loop.now()
        self.roster.make(Stop(self.number, grace, now=grace <= 0))
        self.advance()

    def _on_stall(self) -> None:
        if self.phase == "running":
            self.generation.blame = aftermath.stalled(self.spec.limits.stall)
            self.end_generation(stacks=True)

    # After a generation

    def _after_clearing(self) -> None:
        for agent in self.roster:  # what they reported while clearing
            self.generation.take(self.roster.outcomes_of(agent, self.generation))
        if self.is_moving:
            self._enter("over")  # the other agents wait for the next leader
            self.code = PREEMPTED
        elif self.stopped is not None:
            self.end(self.stopped)
        elif self.phase == "finishing":
            self.end(Verdict("succeeded", 0, aftermath.failed_beside(self.generation)))
        else:
            self._restart_or_fail()

    def _restart_or_fail(self) -> None:
        now, reports = (self.loop.now(), self.loop.time()), self.progress.reports
        follows = aftermath.after_generation(self.generation, self.budget, reports, *now)
        if isinstance(follows, Fail):
            self.end(Verdict("failed", follows.code, follows.reason), **follows.fields)
            return
        self._enter("gathering")
        self.record.emit("restart", left=follows.left, forgiven=follows.forgiven, **follows.fields)
        self.loop.after(RENDEZVOUS, self.spec.limits.rendezvous, self._on_rendezvous)
        self._gather()

    def end(self, verdict: Verdict, **fields: Any) -> None:
        """Give the verdict once `before_verdict` is done. `fields` are added to the `end` event."""
        if self.phase == "over":
            return
        self._enter("over")

        def give_verdict() -> None:
            reason = {"reason": verdict.reason} if verdict.reason else {}
            self.record.end(verdict.state, verdict.code, **reason, **fields)
            self._leave_with(verdict.code)

        self.surroundings.before_verdict(verdict.state, give_verdict)

    def repeat_verdict(self, code: int) -> None:
        """End with the verdict that the record already has."""
        self._enter("over")
        self._leave_with(code)

    def _leave_with(self, code: int) -> None:
        self.code = code
        self.roster.make(Over(self.number, code))
