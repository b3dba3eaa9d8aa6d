"""What the leading agent knows of evaluators: which follow the checkpoints, which scores have arrived, and
which the run waits for once the leader task is done. Pure.

Scores are part of a host's status, which every new connection repeats: a cut connection loses none.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.agent.lead.phases.collaborators import Journal, ScoredCheckpoints
from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.net.deadlines import Action, Deadlines
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.spec import Spec
from oarlock.checkpoints.manifest import name_of, position
from oarlock.run.best_scores import of_checkpoint
from oarlock.run.run_events import Event

EVALUATE = "evaluate"  # a deadline
_NO_METRICS = frozenset({"t", "kind", "task", "step", "generation"})


class Scoring:
    """The evaluators of the current generation."""

    def __init__(
        self, loop: Deadlines, spec: Spec, record: Journal, checkpoints: ScoredCheckpoints, on_late: Action
    ) -> None:
        self._loop = loop
        self._spec = spec
        self._record = record
        self._on_late = on_late
        self._last: str | None = None  # the newest checkpoint, once the leader task is done
        self._checkpoints = checkpoints
        self._heard: set[tuple[str, float, int, int]] = set()
        self.following: set[str] = set()  # evaluators that called State.follow
        self.awaited: set[str] = set()  # evaluators that the run waits for, once the leader task is done

    def form(self) -> None:
        """Begin another generation, in which no evaluator follows yet."""
        self.following, self.awaited, self._last = set(), set(), None
        self._heard.clear()
        self._checkpoints.set_followed(False)

    def hear(self, outcomes: Sequence[Outcome]) -> None:
        """Record the new scores among these, and note which evaluators follow."""
        for outcome in outcomes:
            if outcome.follows and outcome.is_alive and outcome.name not in self.following:
                self.following.add(outcome.name)
                self._checkpoints.set_followed(True)
                if self._last is not None:
                    self.wait()  # wait again, for one that began to follow after the leader task's end
            for score in outcome.scores:
                self._take({**score, "task": outcome.name})

    def _take(self, score: Event) -> None:
        if not of_checkpoint(score):
            return
        step, generation = score["step"], score["generation"]
        key = (score["task"], score["t"], step, generation)
        if key in self._heard:
            return
        self._heard.add(key)
        self._record.emit("report", **{name: value for name, value in score.items() if name != "kind"})
        metrics = {name: value for name, value in score.items() if name not in _NO_METRICS}
        self._checkpoints.keep_score(name_of(step, generation), metrics)

    def begin(self, generation: Generation) -> bool:
        """The leader task is done: wait for the running evaluators. Returns False if there are none."""
        evaluators = (task.name for task in generation.tasks if task.role == "evaluator")
        self.awaited = {name for name in evaluators if _runs(name, generation)}
        self._last = next(iter(self._checkpoints.names()), "") if self.awaited else None
        return bool(self.awaited)

    def wait(self) -> None:
        """Wait for the evaluators. Those that follow have limits.evaluate, others the grace."""
        limits = self._spec.limits
        self._loop.after(EVALUATE, limits.evaluate if self.following else limits.grace, self._late)
        if self._is_unscored:
            self._record.emit("note", text=f"waiting for {self._who} to score step {self._step}")

    def end(self) -> None:
        """Stop waiting."""
        self._loop.cancel(EVALUATE)
        self.awaited.clear()

    def _late(self) -> None:
        if self._is_unscored:
            limit, command = self._spec.limits.evaluate, f"oarlock evaluate {self._spec.run}@{self._step}"
            text = f"{self._who} did not score step {self._step} within limits.evaluate ({limit:g} s)"
            self._record.emit("note", text=f"{text}; `{command}` does")
        self._on_late()

    @property
    def _is_unscored(self) -> bool:
        """Whether an evaluator follows and the last checkpoint has no score yet."""
        return bool(self._last and self._who) and self._last not in self._checkpoints.scored()

    @property
    def _who(self) -> str:
        return ", ".join(sorted(self.awaited & self.following))

    @property
    def _step(self) -> int:
        return (position(self._last or "") or (0, 0))[0]

    def give_up(self, task: str) -> None:
        """Stop waiting for this evaluator: it has ended and does not restart."""
        self.awaited.discard(task)
        if task in self.following:
            self.following.discard(task)
            self._checkpoints.set_followed(bool(self.following))


def _runs(task: str, generation: Generation) -> bool:
    """Whether the task is alive or about to restart."""
    outcome = generation.outcomes.get(task)
    return outcome is None or outcome.is_alive or generation.launches.get(task, 1) > outcome.launch
