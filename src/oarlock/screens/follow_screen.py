"""Follow a run until it ends: show it on a screen, and pass Ctrl-C to a callback.

Clients count Ctrl-C from before the run starts, so importing this takes little.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol

from oarlock.engines.engine import follow
from oarlock.screens.output import say

if TYPE_CHECKING:
    from oarlock.records.log_blocks import Block
    from oarlock.records.run_folder import RunFolder
    from oarlock.records.watch import Watch
    from oarlock.run.run_events import Event
    from oarlock.run.run_state import RunState

MOST_BEHIND = 4 << 20  # bytes of output by which a terminal may lag behind; a pipe gets all of it


class Screen(Protocol):
    """A way to show a run: plain lines, a live display, JSON lines."""

    def show(
        self,
        state: RunState,
        happened: Sequence[Event],
        output: Sequence[Block],
        unfinished: Mapping[str, bytes] | None = None,
    ) -> None:
        """Show what is new, and the lines that tasks have begun and not ended."""

    def say(self, text: str) -> None:
        """Show a line of Oarlock's own."""

    def close(self) -> None:
        """Leave the screen as it should stay."""


class Interrupts:
    """Count Ctrl-C instead of raising, so that it is handled between two updates of the screen."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:
        self._before = {sig: signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, self._interrupted)
        # The default action would leave the cursor hidden by a live display. The run continues.
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
    """The client has detached; the run continues."""


def until_end(
    watch: Watch, screen: Screen, interrupts: Interrupts, on_interrupt: Callable[[int], None]
) -> RunState:
    """Show a run until it ends and return its final state.

    `on_interrupt(n)` is called for the n-th Ctrl-C and may raise Detached.
    """
    heard = 0
    try:
        for happened, output in follow(watch):
            screen.show(watch.state, happened, output, watch.unfinished)
            while heard < interrupts.count:
                heard += 1
                on_interrupt(heard)
    finally:
        screen.close()
    return watch.state


@contextmanager
def leaving(run: RunFolder) -> Iterator[None]:
    """Let Ctrl-C end a verb that only reads, with a note that the run continues."""
    try:
        yield
    except KeyboardInterrupt:
        if run.is_running():
            say(err=True)
            say(f"detached; {run.name} continues", err=True)
        sys.exit(130)


def in_order(happened: Sequence[Event], output: Sequence[Block]) -> list[Event | Block]:
    """Merge events and output by time."""
    from oarlock.agent.record.task_log import timestamp

    stamped: list[tuple[str, Event | Block]] = [(timestamp(event["t"]), event) for event in happened]
    stamped += [(block.time, block) for block in output]
    return [item for _, item in sorted(stamped, key=lambda pair: pair[0])]
