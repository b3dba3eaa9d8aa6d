"""One generation of the gang, and all that is known only until it ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oarlock.agent.lead.phases import culprit
from oarlock.agent.lead.phases.report_sampling import ReportSampling
from oarlock.agent.lead.phases.restart_budget import Loss
from oarlock.agent.protocol.outcome import Outcome
from oarlock.run.cluster import Task


@dataclass
class Generation:
    """One gang, from when it forms until it ends. Conductor and phase machine fill it in."""

    number: int
    formed_at: float  # on the loop's clock
    tasks: tuple[Task, ...] = ()
    places: Mapping[str, list[str]] = field(default_factory=dict)  # agent -> its tasks
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    launches: dict[str, int] = field(default_factory=dict)  # of tasks that restarted alone
    made: frozenset[str] = frozenset()  # the folders that the leader task has made for all
    progressed: bool = False  # a task reported a step that no task had reached before
    blame: str | None = None  # why it ends, unless a task's exit ended it
    is_forgiven: bool = False  # the end is no failure: it costs no restart
    refusal: str | None = None  # why no generation follows: the next would fail the same way
    sampling: ReportSampling = field(init=False)

    def __post_init__(self) -> None:
        self.keep_next_reports()

    def keep_next_reports(self) -> None:
        """Record one more report of every task, however recent its last one."""
        self.sampling = ReportSampling(self.formed_at)

    def task(self, name: str) -> Task:
        """The task of that name, which must be in this generation."""
        return next(task for task in self.tasks if task.name == name)

    def tasks_on(self, agent: str) -> list[str]:
        """The names of the tasks placed on an agent. The agent may be unknown."""
        return self.places.get(agent, [])

    def trained_on(self, agent: str) -> list[str]:
        """The same without evaluators, which come and go on their own."""
        return [name for name in self.tasks_on(agent) if self.task(name).role != "evaluator"]

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Replace the known outcomes of these tasks."""
        self.outcomes.update({outcome.name: outcome for outcome in outcomes})

    def end_without_failure(self, why: str) -> None:
        """Note why the generation ends, and that this costs no restart."""
        self.blame, self.is_forgiven = why, True

    def loss(self, outcome: Outcome | None, reports: bool, now: float, time: float) -> Loss:
        """What to charge the budget for. `reports`: whether this program ever reported a step."""
        return Loss(
            signature=culprit.signature(outcome) if outcome else str(self.blame),
            signalled=outcome is None or (outcome.signal is not None and not culprit.is_exhausted(outcome)),
            exhausted=culprit.is_exhausted(outcome),
            progressed=self.progressed,
            reports=reports,
            lived=time - outcome.began if outcome else now - self.formed_at,
        )
