"""RunState: a run's events, folded into what every view of the run shows. Pure; travels into pods.

`ps`, `status`, the live display and `--json` all show this and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from oarlock.run import best_scores
from oarlock.run.accounting import Accounts, step_of
from oarlock.run.best_scores import Score
from oarlock.run.cluster import is_ingest
from oarlock.run.observed import source_of
from oarlock.run.run_events import Event
from oarlock.run.task_state import Failure, TaskState
from oarlock.run.typed import VERSION, build, check_version

NOTHING_HAPPENS = "nothing happens"  # how the problem of a stuck run begins
FINAL = frozenset({"succeeded", "failed", "stopped"})
_RESERVED = frozenset({"t", "kind", "task", "step", "total", "generation", "busy", "observed", "more"})
_HOLDS_BACK = 1.2  # times as busy as the others
_MOST_METRICS = 256  # per task: a program that names a new one at each step must not fill the record


@dataclass
class RunState:
    """A run's state, according to its events."""

    run: str
    job: str = ""
    engine: str = "local"
    state: str = "pending"
    created: float | None = None
    started: float | None = None  # when its first task started
    ended: float | None = None
    updated: float | None = None
    generation: int = 0
    restarts: int = 0
    agent: int | None = None  # its process id
    code: int | None = None
    reason: str | None = None
    failure: Failure | None = None
    workers: int | None = None  # as set by `scale`
    problem: str | None = None  # what keeps it from progressing now, and what to do about it
    tasks: dict[str, TaskState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # about the program, and what to do about them
    scores: dict[str, Score] = field(default_factory=dict)  # metric -> scores of checkpoints
    images: dict[str, list[str]] = field(default_factory=dict)  # image -> digests; just one if all went well
    accounts: Accounts = field(default_factory=Accounts)  # where the time went
    host: str | None = None  # its agent's machine
    version: int = VERSION  # the format of its events

    @property
    def is_final(self) -> bool:
        """Whether the run has a verdict."""
        return self.state in FINAL

    @property
    def is_over(self) -> bool:
        """Whether no process works on it any more: it has a verdict, or was lost."""
        return self.is_final or self.state == "lost"

    @property
    def is_stuck(self) -> bool:
        """Whether its problem is that nothing happens, which its leading agent reports and withdraws."""
        return (self.problem or "").startswith(NOTHING_HAPPENS)

    @property
    def leader(self) -> TaskState | None:
        """The first task, which is the chief or worker-0: `run` lists tasks in rank order."""
        return next(iter(self.tasks.values()), None)

    @property
    def foremost(self) -> TaskState | None:
        """The task whose progress is the run's: the leader or, before training, an ingest."""
        ingests = [task for name, task in self.tasks.items() if is_ingest(name)]
        working = [task for task in ingests if task.state == "running"]
        reporting = [task for task in working if task.step is not None]  # others wait for its data
        return next(iter(reporting or working or ingests), None) if self.state == "ingesting" else self.leader

    @property
    def straggler(self) -> TaskState | None:
        """The task that all others wait for: they go in step, so their rates are equal and reveal nothing."""
        working = [task for task in self.tasks.values() if task.state == "running" and task.busy is not None]
        if self.state != "running" or len(working) < 2:
            return None
        *others, last = sorted(working, key=lambda task: task.busy or 0)
        usual = others[len(others) // 2].busy or 0
        return last if (last.busy or 0) > _HOLDS_BACK * usual else None

    def apply(self, event: Event) -> None:
        """Take the next event into account."""
        self.updated = event["t"]
        self.accounts.apply(event)
        change = getattr(self, f"_on_{event['kind']}", None)
        if change is not None:
            change(event)

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        data = asdict(self)
        for name, task in self.tasks.items():
            data["tasks"][name]["eta"] = task.eta
            del data["tasks"][name]["measured"]
        data["tasks"] = list(data["tasks"].values())
        data["straggler"] = self.straggler.name if self.straggler else None
        return data

    @classmethod
    def from_data(cls, data: Any) -> RunState:
        """Read what `to_data` returned, in any version. Raises ValueError if it makes no sense."""
        if not isinstance(data, dict) or not isinstance(data.get("tasks"), list):
            raise ValueError("not the state of a run")
        check_version(data)
        scores = data.get("scores") or {}
        if not isinstance(scores, dict):
            raise ValueError("not the scores of a run")
        tasks = [build(TaskState, task) for task in data["tasks"]]
        return build(
            cls,
            data,
            tasks={task.name: task for task in tasks},
            failure=build(Failure, data["failure"]) if data.get("failure") else None,
            accounts=Accounts.from_data(data.get("accounts")),
            scores={str(name): build(Score, one) for name, one in scores.items()},
        )

    def _on_run(self, event: Event) -> None:
        self.job = event.get("job", "")
        self.engine = event.get("engine", self.engine)
        self.created = event["t"]
        self._note_writer(event)
        self.tasks = {name: TaskState(name) for name in event.get("tasks", [])}

    def _note_writer(self, event: Event) -> None:
        self.host = event.get("host", self.host)
        self.version = max(self.version, event.get("version", VERSION))

    def _on_agent(self, event: Event) -> None:
        self.state = "starting"
        self.agent = event.get("pid")
        self._note_writer(event)
        self.code = self.reason = self.failure = self.ended = None

    def _on_image(self, event: Event) -> None:
        digests = self.images.setdefault(event["image"], [])
        if event["digest"] not in digests:
            digests.append(event["digest"])

    def _on_generation(self, event: Event) -> None:
        self.generation = event["generation"]
        names = event.get("tasks") or list(self.tasks)
        ingest = {name: task for name, task in self.tasks.items() if is_ingest(name)}
        gang = {name: self.tasks.get(name) or TaskState(name) for name in names}
        self.tasks = {**gang, **ingest}
        for task in gang.values():
            task.state, task.pid, task.code, task.rate, task.busy = "pending", None, None, None, None
            task.measured, task.gpu = 0.0, {}

    def _on_tasks(self, event: Event) -> None:
        self.tasks = {name: self.tasks.get(name) or TaskState(name) for name in event["tasks"]}

    def _on_task(self, event: Event) -> None:
        task = self._task(event)
        if event["state"] == "started":
            is_next_step = (
                is_ingest(task.name) and task.code == 0
            )  # it fetches, prepares and seals, in this order
            task.state, task.pid, task.code = "running", event.get("pid"), None
            task.starts += not is_next_step
            if is_ingest(task.name):
                self.state = "ingesting" if self.state in ("pending", "starting") else self.state
                return
            self.started = self.started or event["t"]
            if self.state in ("pending", "starting", "ingesting", "restarting"):
                self.state = "running"
        else:
            task.pid, task.code = None, event.get("code")
            task.state = "killed" if event.get("ours") else "finished" if task.code == 0 else "failed"

    def _on_report(self, event: Event) -> None:
        task = self._task(event)
        step = step_of(event)
        task.note_source(source_of(event), step)
        task.note_total(event.get("total", task.total), step)
        if best_scores.is_score(event):
            task.step = step  # a checkpoint's: an evaluator has no pace of its own
            self.add_score(event)
        elif step is not None:
            task.measure(step, event["t"])
        task.reported = event["t"]
        task.busy = event.get("busy", task.busy)
        for key, value in event.items():
            if key not in _RESERVED and (key in task.metrics or len(task.metrics) < _MOST_METRICS):
                task.metrics[key] = value

    def _on_gpu(self, event: Event) -> None:
        self._task(event).gpu = {key: value for key, value in event.items() if key not in _RESERVED}

    def add_score(self, event: Event, is_late: bool = False) -> None:
        """Add the score of a checkpoint. `is_late`: it came after the run, in any order."""
        step = step_of(event)
        for key, value in event.items() if step is not None else ():
            if key not in _RESERVED and (key in self.scores or len(self.scores) < _MOST_METRICS):
                best_scores.add(self.scores, key, value, step or 0, is_late)

    def _on_restart(self, event: Event) -> None:
        self.restarts += not event.get("forgiven")
        self.failure = Failure.of(event)
        self.state = "restarting"

    def _on_note(self, event: Event) -> None:
        self.notes = [*self.notes[-19:], str(event.get("text", ""))]

    def _on_warning(self, event: Event) -> None:
        text = "; ".join(str(event[key]) for key in ("text", "fix") if event.get(key))
        if text not in self.warnings:
            self.warnings = [*self.warnings[-19:], text]

    def _on_scale(self, event: Event) -> None:
        self.workers = event.get("workers")

    def _on_problem(self, event: Event) -> None:
        parts = [str(event[key]) for key in ("text", "fix") if event.get(key)]
        self.problem = "; ".join(parts) or None

    def _on_stop(self, event: Event) -> None:
        self.state = "stopping"
        self.reason = event.get("reason")

    def _on_end(self, event: Event) -> None:
        self.state = event["state"]
        self.code = event.get("code")
        self.reason = event.get("reason")
        self.ended, self.problem = event["t"], None
        self.failure = Failure.of(event) if self.state == "failed" else None

    def _task(self, event: Event) -> TaskState:
        return self.tasks.setdefault(event["task"], TaskState(event["task"]))


def fold(run: str, events: Iterable[Event]) -> RunState:
    """Return the state after all events."""
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
