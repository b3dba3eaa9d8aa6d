"""Standing beside a run until it ends: what happens goes to a screen, Ctrl-C to whoever asked for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Protocol

from oarlock.agent.record.run_record import timestamp
from oarlock.engines.engine import follow
from oarlock.records.runs import RunFolder
from oarlock.records.watch import LogLine, Watch
from oarlock.run.events import Event
from oarlock.run.run_state import RunState
from oarlock.screens.output import say


class Screen(Protocol):
    """Where a run is shown: plain lines, a live display, JSON lines."""

    def show(self, state: RunState, happened: Sequence[Event], lines: Sequence[LogLine]) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Interrupts:
    """Ctrl-C counted instead of raised, so that it is acted on between two looks and nothing is torn."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:
        self._before = {sig: signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, self._interrupted)
        # Not the default, which would leave a live display's hidden cursor behind. The run goes on.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sig, handler in self._before.items():
            signal.signal(sig, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class Detached(Exception):
    """The watcher left; the run goes on."""


def until_end(
    watch: Watch, screen: Screen, interrupts: Interrupts, on_interrupt: Callable[[int], None]
) -> RunState:
    """The final state. `on_interrupt(n)` is called for the n-th Ctrl-C and may raise Detached."""
    heard = 0
    try:
        for happened, lines in follow(watch):
            screen.show(watch.state, happened, lines)
            while heard < interrupts.count:
                heard += 1
                on_interrupt(heard)
    finally:
        screen.close()
    return watch.state


@contextmanager
def leaving(run: RunFolder) -> Iterator[None]:
    """Around a verb that only reads along: Ctrl-C leaves it, and says that the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if run.is_running():
            say(err=True)
            say(f"detached; {run.name} goes on", err=True)
        sys.exit(130)


def in_order(happened: Sequence[Event], lines: Sequence[LogLine]) -> list[Event | LogLine]:
    """Events and output of one look as they happened."""
    stamped: list[tuple[str, Event | LogLine]] = [(timestamp(event["t"]), event) for event in happened]
    stamped += [(line.time, line) for line in lines]
    return [item for _, item in sorted(stamped, key=lambda pair: pair[0])]
