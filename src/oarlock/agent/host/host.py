"""The hosting half of an agent: it makes this machine's tasks match what the conductor wants.

The conductor sends a *wish* (`protocol.wishes`). It may come twice, late, or after a cut, so the host does
not follow orders one by one: it compares the wish with what exists (`host_state`) and moves toward it. It
reports what exists as a *status*. It does no I/O: `host_effects` lists what it needs.
"""

from __future__ import annotations

from dataclasses import asdict

from oarlock.agent.host.faults import Faults
from oarlock.agent.host.host_effects import Machine, Supply, Upstream, Zygote
from oarlock.agent.host.host_state import HostState
from oarlock.agent.host.task_events import TaskEvents
from oarlock.agent.host.task_launcher import TaskLauncher
from oarlock.agent.host.task_shutdown import TaskShutdown
from oarlock.agent.net.deadlines import Deadlines
from oarlock.agent.net.dropped_messages import DroppedMessages
from oarlock.agent.protocol.gates import MeetAt
from oarlock.agent.protocol.host_status import Status
from oarlock.agent.protocol.spec import Seat, Spec
from oarlock.agent.protocol.wishes import (
    Clear,
    Fault,
    Finish,
    Halt,
    Made,
    Order,
    Part,
    RunTasks,
    ShowStacks,
    Stop,
    ToGates,
    Wish,
)
from oarlock.agent.zygote.orders import Exited, Launched, MachineUnfit, NotLaunched, Ready, Reply, Swept

ZYGOTE = "zygote"  # the deadline by which it has to be ready
_MOST_DEATHS = 3


class Host:
    """The tasks of one machine. It starts and ends them to fulfill wishes, and reports to `upstream`."""

    def __init__(
        self,
        loop: Deadlines,
        spec: Spec,
        seat: Seat,
        machine: Machine,
        zygote: Zygote,
        upstream: Upstream,
        supply: Supply | None = None,
    ) -> None:
        self.loop = loop
        self.spec = spec
        self.name = seat.name
        self.slots = seat.slots
        self.machine = machine
        self.zygote = zygote
        self.upstream = upstream
        self._deaths = 0  # zygotes in a row that died before they were ready
        self.is_preparing = False  # tasks have to wait until this machine has its data
        self.supply = supply  # set if this machine cannot see the leader's folders
        self.state = HostState()
        self.ports = machine.free_ports(sum(self.slots.values()))
        self.dropped = DroppedMessages(loop, self._note)
        shared = (loop, spec, self.state)
        self.shutdown = TaskShutdown(
            *shared, machine, zygote, upstream, supply, self._show_stacks, self._converge
        )
        self.events = TaskEvents(loop, self.state, machine, zygote, upstream, self.shutdown, self.dropped)
        self.launcher = TaskLauncher(*shared, machine, zygote, upstream, self.events, self.shutdown)
        self.faults = Faults(loop, lambda one, sig: self.shutdown.signal([one], sig, ours=False), upstream)

    def start(self) -> None:
        """Start the zygote. It has limits.rendezvous to get ready."""
        self.zygote.start(sum(self.slots.values()), self.on_reply, self.on_zygote_lost)
        self.loop.after(ZYGOTE, self.spec.limits.rendezvous, self._on_never_ready)
        self.events.look_for_life(self.spec.limits.stall)
        self.machine.watch_gpus()
        self.events.look_at_gpus()

    def close(self) -> None:
        """End the zygote with all tasks, or let it stay for the next run."""
        self.loop.cancel(ZYGOTE)
        self.zygote.close(self.events.for_next_run())
        for process in self.state.tasks.values():
            process.close()

    @property
    def wish(self) -> Wish:
        """The newest wish, whether or not it is fulfilled yet."""
        return self.state.wish

    @property
    def is_busy(self) -> bool:
        """Whether tasks run here, or are being forked."""
        return bool(self.state.alive())

    @property
    def is_cleared(self) -> bool:
        """Whether nothing is left of the last generation on this machine."""
        return self.state.cleared >= self.state.generation

    @property
    def is_leaving(self) -> bool:
        """Whether this machine was asked to leave."""
        return self.state.is_leaving

    def status(self) -> Status:
        """What the conductor needs to know about this machine now."""
        state = self.state
        return Status(
            generation=state.generation,
            cleared=state.cleared,
            ready=state.is_ready and not state.is_leaving and not self.is_preparing,
            preparing=self.is_preparing,
            leaving=state.is_leaving,
            ports=tuple(self.ports),
            slots=self.slots,
            tasks=tuple(process.outcome() for process in state.tasks.values()),
            made=frozenset().union(*(process.made for process in state.tasks.values())),
            gates={process.name: process.gate for process in state.alive() if process.gate},
        )

    # Wishes and orders

    def obey(self, wish: Wish | Order) -> None:
        """Move toward a wish, unless it is older than the last one; carry out an order."""
        if isinstance(wish, ShowStacks):
            self._show_stacks()
        elif isinstance(wish, ToGates):
            self._pass_on(wish)
        elif isinstance(wish, Fault):
            self._inflict(wish)
        elif isinstance(wish, Part):
            self.end_tasks()
        elif isinstance(wish, Made):
            self.state.made = wish
            self.state.tell_made()
        elif wish.generation >= self.wish.generation:  # otherwise a later wish has overtaken it
            self.state.wish = wish
            self._make_room(wish)
            self._converge()

    def end_tasks(self) -> None:
        """End the tasks as a stop would, whatever the conductor wants."""
        self.obey(self.wish if isinstance(self.wish, Stop) else Stop(self.wish.generation))

    def leave(self) -> None:
        """Accept no more tasks: this machine was asked to leave."""
        self.state.is_leaving = True
        self.upstream.on_status()

    def fence(self) -> None:
        """End the tasks: without a leading agent for so long, another machine may be training instead."""
        self.shutdown.clear(ours=False)

    def _make_room(self, wish: Wish) -> None:
        """Offer as many slots as are wanted, if this is the only machine of the run."""
        want = wish.want if isinstance(wish, (Clear, Halt)) else None
        if want is not None and self.spec.is_alone and want != self.slots:
            self.slots = dict(want)
            self.ports = self.machine.free_ports(sum(self.slots.values()))
            self.upstream.on_status()

    def _converge(self) -> None:
        """Move from what exists toward the wish."""
        wish = self.wish
        if isinstance(wish, RunTasks):
            self._run(wish)
        elif wish.generation > self.state.generation:
            self.shutdown.clear()  # that generation never started on this machine
        elif isinstance(wish, Clear):
            self.shutdown.clear_after_stacks() if wish.stacks else self.shutdown.clear()
        elif isinstance(wish, (Finish, Stop)):
            self.shutdown.wind_down(wish)

    def _run(self, wish: RunTasks) -> None:
        state = self.state
        if wish.generation == state.generation:
            self.launcher.relaunch(wish)
            self.shutdown.end_all_but_evaluators(wish)
        elif not self.is_cleared or state.alive() or state.is_sweeping:
            self.shutdown.clear()
        elif state.is_ready and self._is_supplied(wish):
            self._form(wish)

    def _form(self, wish: RunTasks) -> None:
        state = self.state
        mine = set(wish.places.get(self.name, []))
        tasks = [task for task in wish.gang.tasks if task.name in mine]
        tasks = [task for task in tasks if not wish.is_done or task.role == "evaluator"]
        self.events.dismiss_standbys([task.name for task in tasks])
        state.generation, state.ending, state.tasks = wish.generation, None, {}
        for task in tasks:
            self.launcher.launch(wish, task, wish.launches.get(task.name, 1))
        self.ports = self.machine.free_ports(sum(self.slots.values()))
        self.shutdown.end_all_but_evaluators(wish)
        if not state.tasks:
            state.cleared = wish.generation
        self.upstream.on_status()

    def _is_supplied(self, wish: RunTasks) -> bool:
        """Whether this machine has what its tasks resume from. If not, start to fetch it."""
        if self.supply is None or not wish.places.get(self.name) or self.supply.has(wish.gang):
            return True
        self.supply.get(wish.gang, self._on_supplied)
        return False

    def _on_supplied(self, trouble: str | None) -> None:
        if trouble is not None:
            self._give_notice(f"{self.name}: {trouble}")
        elif isinstance(self.wish, RunTasks):
            self._converge()

    def _pass_on(self, order: ToGates) -> None:
        """Send a message to the gates. New connections repeat it: without a decision, tasks would wait."""
        if order.generation != self.state.generation:
            return
        halts = isinstance(order.message, MeetAt) and order.message.purpose == "halt"
        for process in self.state.alive():
            if process.task.is_trainer and process.gate is not None:
                process.is_halting |= halts
                process.send(order.message.line)

    def _inflict(self, fault: Fault) -> None:
        process = self.state.tasks.get(fault.task)
        if fault.generation == self.state.generation and process is not None and process.is_alive:
            self.faults.inflict(fault, process)

    def _show_stacks(self) -> None:
        """Have every task write its stacks to its log. A stopped task cannot, and the log says so."""
        for process in self.state.alive():
            self.machine.show_stacks(process)

    # The zygote

    def on_reply(self, reply: Reply) -> None:
        """Handle a reply from the zygote."""
        if isinstance(reply, Ready):
            self._on_ready(reply)
        elif isinstance(reply, Launched):
            self.launcher.on_launched(reply.task, reply.pid)
        elif isinstance(reply, NotLaunched):
            self.launcher.on_not_launched(reply.task, reply.errno)
        elif isinstance(reply, Exited):
            self.events.on_exits(reply.exits)
        elif isinstance(reply, MachineUnfit):
            self._give_notice(reply.text)
        elif isinstance(reply, Swept):
            self.shutdown.on_swept()

    def on_zygote_lost(self) -> None:
        """The zygote died, and its tasks with it: kill what they left behind, and start another zygote."""
        how = self.zygote.bury()
        self._deaths = 0 if self.state.is_ready else self._deaths + 1
        if self._deaths > _MOST_DEATHS:
            self.loop.cancel(ZYGOTE)
            self._give_notice(f"{self.name}: the task launcher (zygote) dies as it starts{how}")
            return
        if not self.state.is_ready and self.zygote.warm and not self.zygote.is_adopted:
            self._note(f"importing {', '.join(self.spec.modules)} ended the process{how}")
            self.zygote.warm = False  # let the program's own import show the error
        else:
            self._note(f"the task launcher (zygote) died{how}; starting another")
        self.state.is_ready = self.state.is_sweeping = False
        self.events.on_zygote_lost()
        self.upstream.on_status()
        self.start()
        self.shutdown.sweep_if_ended()

    def _on_ready(self, ready: Ready) -> None:
        self.loop.cancel(ZYGOTE)
        self.state.is_ready = True
        fields = {**asdict(ready), "keeper": self.zygote.keeper, "keep": self.zygote.keep}
        self.upstream.on_event({"kind": "ready", **{name: value for name, value in fields.items() if value}})
        if not ready.warm and self.spec.warm:
            self._note(f"tasks are spawned, not forked: {ready.why}")
        self._converge()
        self.upstream.on_status()

    def _on_never_ready(self) -> None:
        modules, limit = ", ".join(self.spec.modules) or "the interpreter", self.spec.limits.rendezvous
        self._give_notice(f"importing {modules} took longer than limits.rendezvous ({limit:g} s)")

    def _give_notice(self, why: str) -> None:
        """Report that this machine can run no tasks."""
        self.upstream.on_event({"kind": "never_ready", "text": why})

    def _note(self, text: str) -> None:
        self.upstream.on_event({"kind": "note", "text": text})
