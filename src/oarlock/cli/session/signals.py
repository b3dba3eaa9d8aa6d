"""Let a client that is terminated remove what it has created on a cluster."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: through every `finally`."""

    def leave(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
