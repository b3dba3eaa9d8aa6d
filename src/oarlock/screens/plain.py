"""A run as plain lines for pipes and files: `worker-0 | text`, and Oarlock's own as `oarlock | text`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from oarlock.records.log_blocks import Block
from oarlock.run.run_events import Event
from oarlock.run.run_state import RunState
from oarlock.screens import event_text
from oarlock.screens.follow_screen import in_order
from oarlock.screens.last_line import LastLine
from oarlock.screens.output import print_output, say

_INTERVAL = 5.0  # seconds between two lines of progress


class Plain:
    """A screen that prints plain lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = float("-inf")
        self._last = LastLine()

    def show(
        self,
        state: RunState,
        happened: Sequence[Event],
        output: Sequence[Block],
        unfinished: Mapping[str, bytes] | None = None,
    ) -> None:
        """Print new output, events and progress."""
        for item in in_order(happened, output):
            if isinstance(item, Block):
                self._print(item, state)
            elif text := event_text.notable(item, state):
                self.say(text)
        if any(event["kind"] == "report" for event in happened):
            self._progress(state)
        self._last.show(unfinished or {})

    def _print(self, block: Block, state: RunState) -> None:
        if block.skipped:
            self.say(event_text.skipped(block.task, block.skipped, state.run))
        self._last.clear()
        print_output(f"{block.task} | ", block.data)

    def say(self, text: str) -> None:
        """Print a line of Oarlock's own."""
        self._last.clear()
        say(f"oarlock | {text}")

    def close(self) -> None:
        """Leave no unfinished line behind."""
        self._last.clear()

    def _progress(self, state: RunState) -> None:
        leader, now = state.foremost, self._clock()
        if leader is not None and leader.step is not None and now - self._told_at >= _INTERVAL:
            self._told_at = now
            self.say(event_text.run_progress(leader))
