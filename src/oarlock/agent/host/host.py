"""The hosting half of an agent: it makes this machine's tasks be what the conductor wants them to be.

The conductor's word is a *wish*: `{"do": ..., "generation": ...}`. It may come twice, late, or after
a cut, so the host never follows orders one by one: it compares the wish with what is there and
moves towards it. What is there goes back as a *status*.

    run     the tasks placed here run, in this generation; those with a higher launch number start again
    halt    who trains is being told at which step to leave, and leaves by itself
    clear   nobody of this generation runs; everything below the zygote is swept away
    finish  the leader is done: servers are stopped, the others have the grace to end by themselves
    stop    everybody is asked to end: SIGTERM, grace, SIGKILL
    over    the run has ended: leave

Beside wishes there are questions and answers about steps (`meeting`), which are passed on to the tasks, and
`fault`, once and never again: what a user does to a task on purpose (`faults`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from oarlock.agent.host import import_env, metrics
from oarlock.agent.host.faults import Faults
from oarlock.agent.host.stack_requests import Showing
from oarlock.agent.host.task_process import Member
from oarlock.agent.net.loop import Loop
from oarlock.agent.net.oddities import Oddities
from oarlock.agent.protocol import messages
from oarlock.agent.protocol.gates import GATE_EVENTS, MeetAt, Whereabouts
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.protocol.status import Status
from oarlock.agent.protocol.wishes import (
    Clear,
    Fault,
    Finish,
    Halt,
    Order,
    Part,
    Run,
    ShowStacks,
    Stop,
    ToGates,
    Wish,
)
from oarlock.agent.record.run_record import Record
from oarlock.agent.snapshots.transfer import Getting
from oarlock.agent.zygote import orders
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.agent.zygote.orders import (
    Exit,
    Exited,
    Launch,
    Launched,
    NotLaunched,
    Ready,
    Refused,
    Signal,
    Sweep,
    Swept,
)
from oarlock.run.cluster import Task
from oarlock.run.contract import PREEMPTED, environment
from oarlock.system import free_ports, oom_kills, processes

_LAST_WORDS = 5.0  # seconds for a task that reported its error to end by itself
_SERVING = 3.0  # seconds for workers that may only serve to end by themselves
_READS = 16  # of a task's line at one go: one that talks without end must not keep the loop to itself
_LAST_READS = 256
_AGAIN = 1.0  # seconds until a process that could not be made is tried again
_NO_PROCESS = 71  # the exit code of one that never could be: EX_OSERR
_DUMP = 2.0  # seconds for stacks to arrive in the log before the tasks are killed

Event = dict[str, Any]


class Host:
    def __init__(
        self,
        loop: Loop,
        spec: Spec,
        record: Record,
        name: str,
        slots: dict[str, int],
        tell: Callable[[Event | None], None],
    ) -> None:
        self.loop = loop
        self.spec = spec
        self.record = record
        self.name = name
        self.slots = slots
        self.tell = tell  # with an event, or with None when the status has changed
        self.wish: Wish = Clear(0)
        self.generation = 0
        self.cleared = 0  # nobody of this generation or an earlier one is left
        self.is_ready = False
        self.is_sweeping = False
        self.is_leaving = False  # this machine was asked to go: it takes no more tasks
        self.ending: str | None = None  # which end the members have been asked for
        self.members: dict[str, Member] = {}
        self.showing = Showing(loop)
        self.faults = Faults(loop, lambda member, sig: self._signal([member], sig, ours=False), tell)
        self.oddities = Oddities(loop, lambda text: tell({"kind": "note", "text": text}))
        self.starved = oom_kills.kills()
        self.offer = free_ports.free_ports(sum(slots.values()), spec.bind)
        self.getting: Getting | None = None  # of checkpoints, where the folder is not the leader's
        self.zygote = ZygoteProcess(spec)

    def start(self) -> None:
        self.zygote.start(import_env.import_time(self.spec, sum(self.slots.values())))
        self._watch_zygote()
        self.loop.after("zygote", self.spec.limits.rendezvous, self._on_never_ready)

    def close(self) -> None:
        self.zygote.close()
        for member in self.members.values():
            member.close()

    def status(self) -> Status:
        return Status(
            generation=self.generation,
            cleared=self.cleared,
            ready=self.is_ready and not self.is_leaving,
            leaving=self.is_leaving,
            ports=tuple(self.offer),
            slots=self.slots,
            tasks=tuple(member.outcome() for member in self.members.values()),
            gates={member.name: member.gate for member in self._alive() if member.gate},
        )

    def obey(self, wish: Wish | Order) -> None:
        if isinstance(wish, ShowStacks):
            self.dump_stacks()
            return
        if isinstance(wish, ToGates):
            self._pass_on(wish)
            return
        if isinstance(wish, Fault):
            self._inflict(wish)
            return
        if isinstance(wish, Part) or wish.generation < self.wish.generation:
            return  # overtaken by a later one on its way here
        self.wish = wish
        want = wish.want if isinstance(wish, (Clear, Halt)) else None
        if want is not None and self.spec.is_alone and want != self.slots:
            self.slots = dict(want)  # the only machine has room for everybody
            self.offer = free_ports.free_ports(sum(self.slots.values()), self.spec.bind)
            self.tell(None)
        self._converge()

    @property
    def is_busy(self) -> bool:
        return bool(self._alive())

    def fence(self) -> None:
        """No coordinator for too long: somebody else may be training in our place."""
        self._clear(ours=False)

    def dump_stacks(self) -> None:
        """Every task's Python stacks into its log; one that is stopped cannot, and is told apart."""
        for member in self._alive():
            self.showing.ask(member)

    def _inflict(self, wish: Fault) -> None:
        member = self.members.get(wish.task)
        if wish.generation == self.generation and member is not None and member.is_alive:
            self.faults.inflict(wish, member)

    def _converge(self) -> None:
        if isinstance(self.wish, Run):
            self._run(self.wish)
        elif self.wish.generation > self.generation:
            self._clear()  # never started here
        elif isinstance(self.wish, Clear):
            self._clear_after_stacks() if self.wish.stacks else self._clear()
        elif isinstance(self.wish, (Finish, Stop)):
            self._wind_down(self.wish)

    def _pass_on(self, order: ToGates) -> None:
        """Without a decision the tasks would wait for one, so it comes again on every new connection."""
        if order.generation != self.generation:
            return
        halts = isinstance(order.message, MeetAt) and order.message.purpose == "halt"
        for member in self._alive():
            if member.task.is_trainer and member.gate is not None:
                member.is_halting |= halts
                member.ask(order.message.line)

    def _run(self, wish: Run) -> None:
        if wish.generation == self.generation:
            for name, launch in wish.launches.items():
                member = self.members.get(name)
                if member is not None and not member.is_alive and member.launch < launch:
                    self._retire(member)
                    self._launch(wish, member.task, launch)
        elif self.cleared < self.generation or self._alive() or self.is_sweeping:
            self._clear()
        elif self.is_ready and self._is_supplied(wish):
            self._form(wish)

    def _is_supplied(self, wish: Run) -> bool:
        """Whether this machine has the checkpoint that its tasks go on from; if not, it is fetched now."""
        names = wish.gang.checkpoints
        if self.getting is None or not wish.places.get(self.name) or self.getting.has(names):
            return True
        self.getting.get(names, self._on_supplied)
        return False

    def _on_supplied(self, trouble: str | None) -> None:
        if trouble is not None:
            self.tell({"kind": "never_ready", "text": f"{self.name}: {trouble}"})
        elif isinstance(self.wish, Run):
            self._converge()

    def _form(self, wish: Run) -> None:
        self.generation = wish.generation
        self.ending = None
        self.members = {}
        mine = set(wish.places.get(self.name, []))
        for task in wish.gang.tasks:
            if task.name in mine:
                self._launch(wish, task, wish.launches.get(task.name, 1))
        self.offer = free_ports.free_ports(sum(self.slots.values()), self.spec.bind)
        if not mine:
            self.cleared = wish.generation
        self.tell(None)

    def _launch(self, wish: Run, task: Task, launch: int) -> None:
        member = Member(task, self.record.log(self.generation, task.name), launch)
        self.members[task.name] = member
        order = Launch(
            task=task.name,
            parent=self.zygote.pid,
            cwd=self.spec.cwd,
            program=self.spec.program,
            seed=wish.gang.seed,
            identity=f"{task.name} rank {task.rank} generation {self.generation} launch {launch}",
            env={**self.spec.env, **environment(wish.gang, task, self._folders(task))},
        )
        self._ask_zygote(order, member.ends)
        member.handed_over()
        self.loop.watch(member.output, lambda: self._on_output(member))
        self.loop.watch(member.line, lambda: self._on_events(member))

    def _folders(self, task: Task) -> dict[str, str]:
        """Every task must be able to "save", as collectives demand; only the leader's is kept."""
        if task.is_leader:
            return self.spec.folders
        model = self.record.scratch(task.name) / "model"
        model.mkdir(exist_ok=True)
        return {**self.spec.folders, "model": str(model)}

    # The zygote

    def _ask_zygote(self, order: orders.Order, fds: tuple[int, ...] = ()) -> None:
        self.zygote.send(order, fds)
        self._watch_zygote()

    def _watch_zygote(self) -> None:
        self.loop.watch(self.zygote.sock, self._on_zygote, self._on_room if self.zygote.is_behind else None)

    def _on_room(self) -> None:
        self.zygote.flush()
        self._watch_zygote()

    def _on_zygote(self) -> None:
        replies, is_there = self.zygote.receive()
        for reply in replies:
            if isinstance(reply, Ready):
                self._on_ready(reply)
            elif isinstance(reply, Launched):
                self._on_launched(reply.task, reply.pid)
            elif isinstance(reply, NotLaunched):
                self._on_no_process(reply.task, reply.errno)
            elif isinstance(reply, Exited):
                self._on_exits(reply.exits)
            elif isinstance(reply, Refused):
                self.tell({"kind": "never_ready", "text": reply.text})
            elif isinstance(reply, Swept):
                self._on_swept()
        if not is_there:
            self._on_zygote_lost()

    def _on_ready(self, ready: Ready) -> None:
        self.loop.cancel("zygote")
        self.is_ready = True
        told = {**asdict(ready), "keeper": self.zygote.keeper, "keep": self.zygote.keep}
        self.tell({"kind": "ready", **{key: value for key, value in told.items() if value}})
        if not ready.warm and self.spec.warm:
            self.tell({"kind": "note", "text": f"tasks are spawned, not forked: {ready.why}"})
        self._converge()
        self.tell(None)

    def _on_never_ready(self) -> None:
        what = ", ".join(self.spec.modules) or "the interpreter"
        limit = self.spec.limits.rendezvous
        text = f"importing {what} took longer than limits.rendezvous ({limit:g} s)"
        self.tell({"kind": "never_ready", "text": text})

    def _on_zygote_lost(self) -> None:
        """Its tasks die with it (the kernel sees to that); what they leave is ours to end."""
        self.loop.forget(self.zygote.sock)
        how = self.zygote.bury()
        if not self.is_ready and self.zygote.warm and not self.zygote.is_adopted:
            text = f"importing {', '.join(self.spec.modules)} ended the process{how}"
            self.tell({"kind": "note", "text": text})
            self.zygote.warm = False  # let the program's own import say why
        else:
            self.tell({"kind": "note", "text": f"the parent of the tasks died{how}"})
        self.is_ready = self.is_sweeping = False
        for member in self._alive():
            member.status = signal.SIGKILL
            self._tell_exit(member)
        self.tell(None)
        self.start()
        self._finish_clearing()

    # Watching the members

    def _on_launched(self, name: str, pid: int) -> None:
        member = self.members[name]
        member.pid = pid
        self.tell({"kind": "task", "task": name, "state": "started", "pid": pid})
        # What was decided while it was being forked could not reach it.
        if self.ending in ("clear", "stop"):
            self._signal([member], signal.SIGKILL)
        elif self.ending == "finish" and member.task.role == "ps":
            self._signal([member], signal.SIGTERM)

    def _on_no_process(self, name: str, errno: int) -> None:
        """The system refuses another process. That passes when others end, so it tries again, for as
        long as a gang may take to come together."""
        member = self.members[name]
        why = f"{name} cannot start: {processes.why_no_fork(errno)}"
        if member.began + self.spec.limits.rendezvous < time.time():
            member.error = {"type": "OSError", "message": why, "where": None, "t": time.time()}
            self.tell({"kind": "error", **member.error, "task": name})
            self._never_started(member)
            return
        if not self.loop.expects("silence about forks"):
            self.tell({"kind": "note", "text": f"{why}; trying again"})
            self.loop.after("silence about forks", self.spec.limits.rendezvous, lambda: None)
        self.loop.after(f"start of {name}", _AGAIN, lambda: self._start_again(member))

    def _start_again(self, member: Member) -> None:
        if self.members.get(member.name) is not member or not member.is_alive:
            return
        wish = self.wish
        if self.ending or not isinstance(wish, Run) or wish.generation != self.generation:
            member.ours = True
            self._never_started(member)
            return
        self._retire(member)
        self._launch(wish, member.task, member.launch)
        self.members[member.name].began = member.began

    def _never_started(self, member: Member) -> None:
        member.status = _NO_PROCESS << 8
        self._tell_exit(member)
        self.tell(None)
        self._finish_clearing()

    def _on_output(self, member: Member) -> None:
        if not member.read_output():
            self.loop.forget(member.output)

    def _on_events(self, member: Member, most: int = _READS) -> None:
        lines, is_open = member.read_lines(most)
        for line in lines:
            try:
                self._on_event(member, messages.task_event(line, member.name, time.time()))
            except Exception as error:  # a task may write anything: it costs that line
                self.oddities.add(member.name, error)
        if not is_open:
            self.loop.forget(member.line)

    def _on_event(self, member: Member, event: Event) -> None:
        if event["kind"] == "report":
            self._on_report(member, event)
        elif event["kind"] == "error":
            self._on_error(member, event)
        elif event["kind"] in GATE_EVENTS:
            self._on_gate(member, event)
        elif event["kind"] == "note":
            self.tell({"kind": "note", "text": f"{member.name}: {event['text']}"})
        else:
            self.tell(event)

    def _on_report(self, member: Member, event: Event) -> None:
        now = time.monotonic()
        if member.metrics.add(event, now):
            self.oddities.add(member.name, f"more than {metrics.MOST} names of metrics")
        if now - member.told_at >= _REPORT_INTERVAL:
            member.told_at = now
            self.tell(member.metrics.newest(now))

    def _on_error(self, member: Member, event: Event) -> None:
        member.error = {name: event.get(name) for name in ("type", "message", "where")}
        member.failed_at = event["t"]
        self.tell(event)
        if member.is_alive and not self.ending:
            self.loop.after(
                f"last words of {member.name}",
                _LAST_WORDS,
                lambda: self._signal([member], signal.SIGKILL, False),
            )

    def _on_gate(self, member: Member, event: Event) -> None:
        """Part of the status, which is repeated after a cut; nobody needs it in the record."""
        before = member.gate
        if before is not None or event["kind"] == "gate":
            member.gate = (before or Whereabouts(loop=0)).after(event)
            self.tell(None)

    def _on_exits(self, exits: Sequence[Exit]) -> None:
        ended = []
        for exit in exits:
            for member in self._alive():
                if member.pid == exit.pid:
                    if self.loop.watches(member.line):
                        self._on_events(member, _LAST_READS)  # its last words may still be on the line
                    member.status, member.ours = exit.status, exit.ours
                    member.ours |= member.is_halting and member.code == PREEMPTED
                    ended.append(member)
        self._notice_memory(ended)
        for member in ended:
            self._tell_exit(member)
        self.tell(None)  # of all at once: who died together is judged together
        self._finish_clearing()

    def _notice_memory(self, ended: Sequence[Member]) -> None:
        killed = [member for member in ended if member.signal == signal.SIGKILL and not member.ours]
        if killed and (count := oom_kills.kills()) > self.starved:
            self.starved = count
            for member in killed:
                member.starved = True

    def _tell_exit(self, member: Member) -> None:
        if member.metrics:  # its last one is never thinned out
            self.tell({**member.metrics.all(), "last": True})
        self.loop.cancel(f"last words of {member.name}")
        if member.code != 0 and not member.ours:
            member.failed_at = member.failed_at or time.time()
        ended = {
            "kind": "task",
            "task": member.name,
            "state": "ended",
            "code": member.code,
            "ours": member.ours,
        }
        self.tell(ended)

    # Ends

    def _clear_after_stacks(self) -> None:
        if self.ending is None:
            self.ending = "stacks"
            self.dump_stacks()
            self.loop.after("stacks", _DUMP, self._clear)

    def _clear(self, ours: bool = True) -> None:
        self.loop.cancel("grace")
        self.loop.cancel("stacks")
        self.ending = "clear"
        self._signal(self._alive(), signal.SIGKILL, ours)
        self._finish_clearing()

    def _wind_down(self, wish: Finish | Stop) -> None:
        how = "stop" if isinstance(wish, Stop) else "finish"
        if isinstance(wish, Stop) and wish.now and self.ending != "clear":
            self._clear()
            return
        if self.ending in (how, "stop", "clear"):
            return
        self.ending = how
        for member in self._alive():
            member.ask("stop")
        if how == "stop":
            self._terminate()
        else:
            self._signal([one for one in self._alive() if one.task.role == "ps"], signal.SIGTERM)
            # Beside parameter servers, workers may be servers as well, and wait for a chief that is done.
            grace = (
                min(self.spec.limits.grace, _SERVING) if "ps" in self.spec.sizes else self.spec.limits.grace
            )
            self.loop.after("grace", grace, self._terminate)
        self._finish_clearing()

    def _terminate(self) -> None:
        self.ending = "stop"  # for those as well who are being forked
        self._signal(self._alive(), signal.SIGTERM)
        grace = self.wish.grace if isinstance(self.wish, Stop) else None
        grace = self.spec.limits.grace if grace is None else grace
        self.loop.after("grace", grace, lambda: self._signal(self._alive(), signal.SIGKILL))

    def _signal(self, members: Sequence[Member], sig: int, ours: bool = True) -> None:
        pids = [member.pid for member in members if member.pid is not None]
        if pids:
            self._ask_zygote(Signal(int(sig), tuple(pids), ours))

    def _finish_clearing(self) -> None:
        """Once nobody asked to end is left alive: sweep what they left behind."""
        if not self.ending or self._alive() or self.is_sweeping:
            return
        self.loop.cancel("grace")
        self.loop.cancel("stacks")
        if self.cleared < self.generation and self.is_ready:
            self.is_sweeping = True
            self._ask_zygote(Sweep())
        else:
            self._on_swept()

    def _on_swept(self) -> None:
        self.is_sweeping = False
        for member in self.members.values():
            self._retire(member)
        if isinstance(self.wish, Run):
            self.cleared = self.generation
        else:
            self.cleared = self.generation = max(self.generation, self.wish.generation)
        self.tell(None)
        if isinstance(self.wish, Run) and self.wish.generation > self.generation:
            self._converge()

    def _retire(self, member: Member) -> None:
        if not member.is_closed:
            self.loop.forget(member.output)
            self.loop.forget(member.line)
            member.close()

    def _alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_alive]


_REPORT_INTERVAL = 0.1
