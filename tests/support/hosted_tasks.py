"""A host without processes: the zygote, the tasks' lines and the machine are lists of words."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oarlock.agent.host.host import Host
from oarlock.agent.host.task_process import TaskProcess
from oarlock.agent.net.deadlines import Action
from oarlock.agent.protocol.gates import MeetAt
from oarlock.agent.protocol.spec import LimitsSpec, Program, Seat, Spec
from oarlock.agent.protocol.wishes import Clear, Finish, Halt, Order, RunTasks, Stop, ToGates, Wish
from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import Trouble
from oarlock.agent.zygote import orders
from oarlock.agent.zygote.orders import Exit, Exited, Launched, NotLaunched, Ready, Reply, Swept
from oarlock.run.cluster import Task, form
from oarlock.run.contract import Gang
from oarlock.run.run_events import Event
from tests.support.still_loop import StillLoop

SPEC = Spec(
    run="r",
    folder="/run",
    cwd="/",
    program=Program("program", "p"),
    sizes={"worker": 2},
    folders={},
    limits=LimitsSpec(),
    machines=2,
    modules=["torch"],
)
EVALUATED = {"worker": 1, "evaluator": 1}
FAILED = 1 << 8  # a status of `waitpid`: exit code 1
PREEMPTED = 143 << 8


def wish_to_run(generation: int = 1, roles: dict[str, int] | None = None, **more: Any) -> RunTasks:
    """Two workers, both here, unless `roles` says otherwise."""
    tasks = form(roles or {"worker": 2})
    names = [task.name for task in tasks]
    gang = Gang(
        "r", generation, tasks, dict.fromkeys(names, "host:1"), checkpoints=more.pop("checkpoints", ())
    )
    return RunTasks(gang, **{"places": {"machine-0": names}, **more})


class Line:
    """One task's line: what the host writes there, and what it finds there at the end."""

    ends = (3, 4)
    written = 0

    def __init__(
        self, name: str, said: list[str], on_lines: Callable[[list[bytes]], None], on_end: Action
    ) -> None:
        self.name = name
        self.said = said
        self.on_lines = on_lines
        self.on_end = on_end
        self.unread: list[bytes] = []
        self.is_handed_over = False

    def handed_over(self) -> None:
        self.is_handed_over = True

    def send(self, text: str) -> None:
        self.said.append(f"{self.name}<{text}")

    def say(self, text: str) -> None:
        pass

    @property
    def tail(self) -> bytes:
        return b""

    def read_output(self) -> bool:
        return True

    def last_lines(self) -> list[bytes]:
        return self.unread

    def close(self) -> None:
        self.said.append(f"{self.name}<closed")


class Zygote:
    pid = 1
    is_adopted = False
    keeper: int | None = 99
    keep = 0.0
    keeps_gpus = True

    def __init__(self, said: list[str]) -> None:
        self.warm = True
        self.said = said

    def start(self, tasks: int, on_reply: Callable[[Reply], None], on_lost: Callable[[], None]) -> None:
        self.said.append(f"start:{tasks}")

    def send(self, order: orders.Order, fds: tuple[int, ...] = ()) -> None:
        if isinstance(order, orders.Launch):
            self.said.append(f"launch:{order.task}")
        elif isinstance(order, orders.Signal):
            name = signal.Signals(order.number).name
            pids = ",".join(map(str, order.pids))
            self.said.append(f"{name}:{pids}{'' if order.ours else ':theirs'}")
        elif isinstance(order, orders.Import):
            self.said.append(f"import:{','.join(order.modules)}")
        elif isinstance(order, orders.OpenGpus):
            self.said.append(f"open:{order.task}")
        elif isinstance(order, orders.StandBy):
            self.said.append(f"stand by:{order.task}:{','.join(map(str, order.gpus))}")
        else:
            self.said.append("sweep")

    def hurry(self) -> None:
        pass

    def bury(self) -> str:
        return " (exit code 1)"

    def close(self, standbys: Sequence[orders.StandBy] = ()) -> None:
        self.said.append(" ".join(["close", *(f"{one.task}:{one.gpus}" for one in standbys)]))


class Supply:
    """Of checkpoints: fetched when the test says so."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_complete = True  # what is left to score has come
        self.then: Callable[[str | None], None] = lambda trouble: None

    def has(self, gang: Gang) -> bool:
        return set(gang.checkpoints) <= set(self.names)

    def get(self, gang: Gang, then: Callable[[str | None], None]) -> None:
        self.then = then

    def has_unscored(self) -> bool:
        return self.is_complete


class HostedTasks:
    """machine-0 with two workers, which have the pids 10 and 11. It is its own upstream."""

    def __init__(
        self, spec: Spec = SPEC, slots: dict[str, int] | None = None, supply: Supply | None = None
    ) -> None:
        self.loop = StillLoop()
        self.said: list[str] = []  # to the zygote and to tasks
        self.events: list[Event] = []
        self.statuses = 0
        self.kills = 0
        self.is_computing = False
        self.ports = 20000
        self.lines: dict[str, Line] = {}
        self.figures: dict[str, dict[str, Any]] | None = None  # of GPUs, by task; None: there are none
        self.room = 0  # bytes, on every task's GPUs
        self.trouble: Trouble | None = None  # with GPUs
        self.held: str | None = ""  # memory of GPUs
        self.asked: list[float] = []  # since when that is in use
        self.dying: set[str] = set()  # tasks
        self.zygote = Zygote(self.said)
        self.supply = supply
        self.obeyed: set[type] = set()
        self.written: set[str] = set()  # kinds of events, by tasks that run or do not
        self._deadlines: dict[str, Any] = {}  # when it came into its state
        seat = Seat("machine-0", slots or {"worker": 2})
        self.host = Host(self.loop, spec, seat, self, self.zygote, self, supply)

    @classmethod
    def of(cls, state: str) -> HostedTasks:
        """A host that is in this state."""
        if state in ("with an evaluator", "scoring", "awaiting checkpoints to score"):
            return cls(replace(SPEC, sizes=EVALUATED), EVALUATED, Supply()).into(state)
        return cls(supply=Supply()).into(state)

    # What the host needs

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_status(self) -> None:
        self.host.status()
        self.statuses += 1

    def free_ports(self, count: int) -> list[int]:
        """Others each time: a generation must not get those of the one before."""
        self.ports += count
        return list(range(self.ports - count, self.ports))

    def oom_kills(self) -> int:
        return self.kills

    def stdin_for(self, task: Task) -> tuple[int, ...]:
        return ()

    def folders(self, task: Task) -> dict[str, str]:
        return {}

    def open_line(
        self, task: Task, generation: int, on_lines: Callable[[list[bytes]], None], on_end: Action
    ) -> Line:
        self.lines[task.name] = Line(task.name, self.said, on_lines, on_end)
        return self.lines[task.name]

    def is_dying(self, process: TaskProcess) -> bool:
        return process.name in self.dying

    def is_active(self, process: TaskProcess) -> bool:
        return self.is_computing

    def show_stacks(self, process: TaskProcess) -> None:
        self.said.append(f"stacks:{process.name}")

    def watch_gpus(self) -> None:
        pass

    def gpu_claim(self, task: Task, env: Mapping[str, str]) -> GpuClaim:
        return GpuClaim(given=())

    def gpu_figures(self, processes: Sequence[TaskProcess]) -> list[dict[str, Any]] | None:
        if self.figures is None:
            return None
        return [self.figures.get(process.name, {}) for process in processes]

    def gpu_room(self, process: TaskProcess) -> int:
        return self.room

    def gpu_trouble(self, process: TaskProcess) -> Trouble | None:
        return self.trouble

    def gpu_memory_held(self, dead: Sequence[TaskProcess], since: float) -> str | None:
        self.asked.append(since)
        return self.held

    # What happens to it

    def obey(self, wish: Wish | Order) -> None:
        self.obeyed.add(type(wish))
        self.host.obey(wish)

    def ready(self) -> None:
        self.host.on_reply(Ready(warm=True))

    def launched(self) -> None:
        for number, process in enumerate(self.host.state.tasks.values()):
            if process.pid is None:
                self.host.on_reply(Launched(process.name, 10 + number))

    def not_launched(self) -> None:
        for process in self.host.state.alive()[:1]:
            process.pid = None
            self.host.on_reply(NotLaunched(process.name, 11))

    def fetched(self, trouble: str | None = None) -> None:
        """What its tasks resume from has come, or cannot."""
        assert self.supply is not None
        self.supply.names = [] if trouble else ["step-7"]
        self.supply.then(trouble)

    def exits(self, *pids: int, status: int = FAILED, ours: bool = False) -> None:
        self.host.on_reply(Exited(tuple(Exit(pid, status, ours) for pid in pids)))

    def swept(self) -> None:
        self.host.on_reply(Swept())

    def writes(self, task: str, **event: Any) -> None:
        self.written.add(event["kind"])
        if task in self.lines:
            self.lines[task].on_lines([json.dumps(event).encode()])

    # States

    def into(self, state: str) -> HostedTasks:
        """Bring it there, the usual way, and forget what it said on the way."""
        getattr(self, f"_into_{state.replace(' ', '_')}")()
        self.said.clear()
        self.events.clear()
        self.statuses = 0
        self._deadlines = dict(self.loop.deadlines)
        return self

    def _into_importing(self) -> None:
        self.host.start()

    def _into_ready(self) -> None:
        self._into_importing()
        self.ready()

    def _into_forking(self) -> None:
        self._into_ready()
        self.obey(wish_to_run())

    def _into_running(self) -> None:
        self._into_forking()
        self.launched()

    def _into_fetching(self) -> None:
        self._into_ready()
        self.obey(wish_to_run(checkpoints=["step-7"]))

    def _into_with_an_evaluator(self) -> None:
        self._into_ready()
        self.obey(wish_to_run(roles=EVALUATED))
        self.launched()

    def _into_scoring(self) -> None:
        self._into_with_an_evaluator()
        self.obey(wish_to_run(roles=EVALUATED, is_done=True))

    def _into_awaiting_checkpoints_to_score(self) -> None:
        assert self.supply is not None
        self.supply.is_complete = False
        self._into_scoring()

    def _into_awaiting_memory(self) -> None:
        self._into_sweeping()
        self.held = "worker-1 holds 1 GiB of GPU 0"
        self.swept()

    def _into_at_gates(self) -> None:
        self._into_running()
        self.writes("worker-0", kind="gate", loop=1)
        self.writes("worker-1", kind="gate", loop=1)

    def _into_halting(self) -> None:
        self._into_at_gates()
        self.obey(Halt(1))

    def _into_showing_stacks(self) -> None:
        self._into_running()
        self.obey(Clear(1, stacks=True))

    def _into_finishing(self) -> None:
        self._into_running()
        self.obey(Finish(1))

    def _into_stopping(self) -> None:
        self._into_running()
        self.obey(Stop(1))

    def _into_clearing(self) -> None:
        self._into_running()
        self.obey(Clear(1))

    def _into_sweeping(self) -> None:
        self._into_clearing()
        self.exits(10, 11, ours=True)

    def _into_cleared(self) -> None:
        self._into_sweeping()
        self.swept()

    # What came of it

    def summary(self) -> str:
        """Which end the tasks are asked for and what is cleared, what was said, and what was reported."""
        hosted = self.host.state
        state = f"{hosted.ending or 'none'} {hosted.cleared}/{hosted.generation}"
        words = [_event_in_words(event) for event in self.events]
        words += [f"status*{self.statuses}"] if self.statuses else []
        words += self._in_status()
        return " | ".join((state, " ".join(self.said), " ".join(words)))

    def _in_status(self) -> list[str]:
        """What a status says beyond the state of its tasks, where it says anything."""
        status = self.host.status()
        words = [f"follows:{one.name}" for one in status.tasks if one.follows]
        words += [f"scores:{one.name}:{len(one.scores)}" for one in status.tasks if one.scores]
        return words + [f"made:{len(status.made)}"] * bool(status.made)

    def deadlines(self) -> str:
        """Which are set or moved since it came into its state, and which are no longer."""
        before, now = self._deadlines, self.loop.deadlines
        words = [f"+{name}" for name in sorted(now) if now[name] is not before.get(name)]
        words += [f"-{name}" for name in sorted(before) if name not in now]
        return ", ".join(word.rstrip("0123456789 ") if "dropped" in word else word for word in words)


def _event_in_words(event: Event) -> str:
    shown = {"task": ("task", "state"), "report": ("task",), "error": ("task",)}
    return ":".join([event["kind"], *(str(event[name]) for name in shown.get(event["kind"], ()))])


def halts(host: HostedTasks) -> None:
    """Both trainers leave at the step that was agreed on."""
    host.obey(ToGates(1, MeetAt(1, "halt", 7)))
    host.exits(10, 11, status=PREEMPTED)
