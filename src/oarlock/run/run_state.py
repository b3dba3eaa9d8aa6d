"""RunState: a run's events, folded into what every view of the run shows. Pure; travels into pods.

`ps`, `status`, the live display and `--json` all show this and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from oarlock.run.accounting import Accounts, step_of
from oarlock.run.events import Event
from oarlock.run.observed import source_of
from oarlock.run.typed import VERSION, build, check_version

FINAL = frozenset({"succeeded", "failed", "stopped"})
_RESERVED = frozenset({"t", "kind", "task", "step", "total", "generation", "busy", "observed", "more"})
_HOLDS_BACK = 1.2  # times as busy as the others
_SMOOTHED_OVER = 20.0  # seconds, or three reports where these take longer
_SHORTEST = 1e-6  # seconds: nothing is divided by less
_MOST_METRICS = 256  # of a task: a program that names a new one at each step must not fill the record


@dataclass
class TaskState:
    """What the events say about one task."""

    name: str
    state: str = "pending"  # pending, running, finished, failed, killed
    pid: int | None = None
    code: int | None = None
    starts: int = 0
    step: int | None = None
    total: int | None = None
    rate: float | None = None  # steps per second
    measured: float = 0.0  # over so many seconds
    reported: float | None = None  # when
    busy: float | None = None  # the share of its time that it does not wait for others
    observed: str | None = None  # which hook saw its progress; None: it reports itself
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def eta(self) -> float | None:
        """Seconds to the last step, at the current rate."""
        if not self.rate or self.total is None or self.step is None:
            return None
        return max(0, self.total - self.step) / self.rate


@dataclass
class Failure:
    """What a task died of. `where` is file:line in the user's own code."""

    task: str
    reason: str
    type: str | None = None
    message: str | None = None
    where: str | None = None
    refusal: str | None = None  # why no restart followed


@dataclass
class RunState:
    """What the events say about a run."""

    run: str
    job: str = ""
    engine: str = "local"
    state: str = "pending"
    created: float | None = None
    started: float | None = None  # the first task's start
    ended: float | None = None
    updated: float | None = None
    generation: int = 0
    restarts: int = 0
    agent: int | None = None  # its process id
    code: int | None = None
    reason: str | None = None
    failure: Failure | None = None
    workers: int | None = None  # as wanted by `scale`
    problem: str | None = None  # of the cluster's, now, with what to do about it
    tasks: dict[str, TaskState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # about the program, with what to do about it
    images: dict[str, list[str]] = field(default_factory=dict)  # digests of each; one, if all went well
    accounts: Accounts = field(default_factory=Accounts)  # where the time went
    host: str | None = None  # the machine its agent is on
    version: int = VERSION  # of what wrote its events

    @property
    def is_final(self) -> bool:
        """Whether the run has a verdict."""
        return self.state in FINAL

    @property
    def is_over(self) -> bool:
        """Nobody works on it any more: it has a verdict, or was lost."""
        return self.is_final or self.state == "lost"

    @property
    def leader(self) -> TaskState | None:
        """The first task is the chief or worker-0: the order of `run` is rank order."""
        return next(iter(self.tasks.values()), None)

    @property
    def straggler(self) -> TaskState | None:
        """The one that all others wait for: as all go in step, their rates are the same and say nothing."""
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
        """What `to_data` gave, of this version or another. Raises ValueError where it makes no sense."""
        if not isinstance(data, dict) or not isinstance(data.get("tasks"), list):
            raise ValueError("no state of a run")
        check_version(data)
        tasks = [build(TaskState, task) for task in data["tasks"]]
        return build(
            cls,
            data,
            tasks={task.name: task for task in tasks},
            failure=build(Failure, data["failure"]) if data.get("failure") else None,
            accounts=Accounts.from_data(data.get("accounts")),
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
        self.tasks = {name: self.tasks.get(name) or TaskState(name) for name in names}
        for task in self.tasks.values():
            task.state, task.pid, task.code, task.rate, task.busy = "pending", None, None, None, None
            task.measured = 0.0

    def _on_task(self, event: Event) -> None:
        task = self._task(event)
        if event["state"] == "started":
            task.state, task.pid, task.code = "running", event.get("pid"), None
            task.starts += 1
            self.started = self.started or event["t"]
            if self.state in ("pending", "starting", "restarting"):
                self.state = "running"
        else:
            task.pid, task.code = None, event.get("code")
            task.state = "killed" if event.get("ours") else "finished" if task.code == 0 else "failed"

    def _on_report(self, event: Event) -> None:
        task = self._task(event)
        step = step_of(event)
        self._note_source(task, source_of(event), step)
        if step is not None:
            self._measure(task, step, event["t"])
        task.total = event.get("total", task.total)
        task.reported = event["t"]
        task.busy = event.get("busy", task.busy)
        for key, value in event.items():
            if key not in _RESERVED and (key in task.metrics or len(task.metrics) < _MOST_METRICS):
                task.metrics[key] = value

    @staticmethod
    def _note_source(task: TaskState, source: str | None, step: int | None) -> None:
        """Forget what another source told: it counted other steps. So does the next progress bar."""
        is_next = source is not None and step is not None and task.step is not None and step < task.step
        if source != task.observed or is_next:
            task.observed, task.step, task.total, task.rate = source, None, None, None
            task.measured, task.reported, task.metrics = 0.0, None, {}

    @staticmethod
    def _measure(task: TaskState, step: int, now: float) -> None:
        """Smooth the rate: one slow step (a checkpoint, an epoch's end) must not swing the ETA. Nor must a
        burst (JAX runs ahead, then tells of 30 steps in a tenth of a second): a short time counts little."""
        seconds = 0.0 if task.reported is None else now - task.reported
        if task.step is not None and step > task.step and seconds > _SHORTEST:
            task.measured = min(task.measured + seconds, max(_SMOOTHED_OVER, 3 * seconds))
            share = seconds / task.measured
            task.rate = (1 - share) * (task.rate or 0) + share * (step - task.step) / seconds
        task.step = step

    def _on_restart(self, event: Event) -> None:
        self.restarts += not event.get("forgiven")
        self.failure = _failure(event)
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
        told = [str(event[key]) for key in ("text", "fix") if event.get(key)]
        self.problem = "; ".join(told) or None

    def _on_stop(self, event: Event) -> None:
        self.state = "stopping"
        self.reason = event.get("reason")

    def _on_end(self, event: Event) -> None:
        self.state = event["state"]
        self.code = event.get("code")
        self.reason = event.get("reason")
        self.ended, self.problem = event["t"], None
        self.failure = _failure(event) if self.state == "failed" else None

    def _task(self, event: Event) -> TaskState:
        return self.tasks.setdefault(event["task"], TaskState(event["task"]))


def _failure(event: Event) -> Failure | None:
    if not event.get("task"):
        return None
    return Failure(
        task=event["task"],
        reason=event.get("reason", ""),
        type=event.get("type"),
        message=event.get("message"),
        where=event.get("where"),
        refusal=event.get("refusal"),
    )


def fold(run: str, events: Iterable[Event]) -> RunState:
    """Return the state after all events."""
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
