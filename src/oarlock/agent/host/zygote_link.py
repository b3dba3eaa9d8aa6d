"""The zygote in the event loop: orders out without blocking, replies in as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oarlock.agent.host import import_env
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.agent.zygote.orders import Launch, Order, Reply, StandBy, Swept

SILENCE = "answer of the zygote"  # a deadline
_PATIENCE = 10.0  # seconds without any answer, once the zygote has to hurry


class ZygoteLink:
    """The `host_effects.Zygote` of a real agent. After a loss, `start` replaces the process.

    `process`: one that was started before the agent could listen to it.
    """

    def __init__(self, loop: Loop, spec: Spec, process: ZygoteProcess | None = None) -> None:
        self._loop = loop
        self._spec = spec
        self._process = process or ZygoteProcess(spec)
        self._is_ahead = process is not None
        self._on_reply: Callable[[Reply], None] = lambda reply: None
        self._on_lost: Action = lambda: None
        self._is_started = False
        self._is_hurried = False
        self._is_silent = False

    @property
    def warm(self) -> bool:
        """Whether the next zygote imports the modules. Otherwise it spawns tasks."""
        return self._process.warm

    @warm.setter
    def warm(self, is_warm: bool) -> None:
        self._process.warm = is_warm

    @property
    def pid(self) -> int:
        """The pid of the current zygote, which must be running."""
        return self._process.pid

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier run did its imports."""
        return self._process.is_adopted

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports now, or will after the run."""
        return self._process.keeper

    @property
    def keep(self) -> float:
        """For how many seconds its imports stay after the run; 0 once a zygote has died."""
        return self._process.keep

    @property
    def keeps_gpus(self) -> bool:
        """Whether GPUs may stay open with the imports."""
        return self._process.keeps_gpus

    def start(self, tasks: int, on_reply: Callable[[Reply], None], on_lost: Action) -> None:
        """Start or adopt a zygote for that many tasks, which share the cores."""
        self._on_reply, self._on_lost = on_reply, on_lost
        self._is_hurried = self._is_silent = False
        self._is_started = True
        if not self._is_ahead:
            self._process.start(import_env.import_time(self._spec, tasks))
        self._is_ahead = False
        self._watch()

    def send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Send an order as soon as there is room. The caller keeps the descriptors."""
        self._is_hurried &= not isinstance(order, Launch)
        self._process.send(order, fds)
        self._watch()
        self._listen()

    def hurry(self) -> None:
        """Kill the zygote if it owes answers and is silent, until it has swept or has to launch tasks.

        A stop must end the run even if the zygote hangs or is paused.
        """
        self._is_hurried = True
        self._listen()

    def bury(self) -> str:
        """Stop watching a dead zygote and end its orphans. Returns how it ended, in words."""
        self._loop.forget(self._process.sock)
        self._loop.cancel(SILENCE)
        how = self._process.bury()
        return f" (killed: it was silent for {_PATIENCE:g} s)" if self._is_silent else how

    def close(self, standbys: Sequence[StandBy] = ()) -> None:
        """End it with all tasks, or let it stay for the next run, which may find these standbys."""
        self._loop.cancel(SILENCE)
        if self._is_started:
            self._loop.forget(self._process.sock)
        self._process.close(standbys)

    def _watch(self) -> None:
        on_room = self._on_room if self._process.is_behind else None
        self._loop.watch(self._process.sock, self._on_readable, on_room)

    def _on_room(self) -> None:
        self._process.flush()
        self._watch()

    def _on_readable(self) -> None:
        replies, is_there = self._process.receive()
        if replies:
            self._loop.cancel(SILENCE)
            self._is_hurried &= not any(isinstance(reply, Swept) for reply in replies)
        for reply in replies:
            self._on_reply(reply)
        self._listen()
        if not is_there:
            self._on_lost()

    def _listen(self) -> None:
        if self._is_hurried and self._process.owes_answer and not self._loop.expects(SILENCE):
            self._loop.after(SILENCE, _PATIENCE, self._on_silent)

    def _on_silent(self) -> None:
        if self._is_hurried and self._process.owes_answer:
            self._is_silent = True
            self._process.kill()
            self._on_lost()
