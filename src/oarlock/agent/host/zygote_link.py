"""The zygote in the event loop: orders out without blocking, replies in as they come."""

from __future__ import annotations

from collections.abc import Callable

from oarlock.agent.host import import_env
from oarlock.agent.net.deadlines import Action
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.spec import Spec
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.agent.zygote.orders import Order, Reply


class ZygoteLink:
    """The `host_effects.Zygote` of a real agent. After a loss, `start` replaces the process."""

    def __init__(self, loop: Loop, spec: Spec) -> None:
        self._loop = loop
        self._spec = spec
        self._process = ZygoteProcess(spec)
        self._on_reply: Callable[[Reply], None] = lambda reply: None
        self._on_lost: Action = lambda: None

    @property
    def warm(self) -> bool:
        """Whether the next zygote imports the modules; if not, it spawns tasks."""
        return self._process.warm

    @warm.setter
    def warm(self, is_warm: bool) -> None:
        self._process.warm = is_warm

    @property
    def pid(self) -> int:
        """The pid of the current zygote, which must have been started."""
        return self._process.pid

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier run did its imports."""
        return self._process.is_adopted

    @property
    def keeper(self) -> int | None:
        """The process that keeps the imports, or will after the run."""
        return self._process.keeper

    @property
    def keep(self) -> float:
        """Seconds for which its imports stay after the run; 0 once a zygote has died."""
        return self._process.keep

    def start(self, tasks: int, on_reply: Callable[[Reply], None], on_lost: Action) -> None:
        """Start or adopt a zygote for that many tasks: they share the cores."""
        self._on_reply, self._on_lost = on_reply, on_lost
        self._process.start(import_env.import_time(self._spec, tasks))
        self._watch()

    def send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        """Send an order as soon as there is room. The descriptors stay the caller's."""
        self._process.send(order, fds)
        self._watch()

    def bury(self) -> str:
        """Stop watching a zygote that died, end its orphans, and return how it ended in words."""
        self._loop.forget(self._process.sock)
        return self._process.bury()

    def close(self) -> None:
        """End it with all tasks, or let it stay for the next run."""
        self._process.close()

    def _watch(self) -> None:
        on_room = self._on_room if self._process.is_behind else None
        self._loop.watch(self._process.sock, self._on_readable, on_room)

    def _on_room(self) -> None:
        self._process.flush()
        self._watch()

    def _on_readable(self) -> None:
        replies, is_there = self._process.receive()
        for reply in replies:
            self._on_reply(reply)
        if not is_there:
            self._on_lost()
