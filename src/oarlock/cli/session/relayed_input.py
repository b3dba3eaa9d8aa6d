"""The input of a task: what `oarlock run` itself has as its standard input.

A pipe or a file goes to the task itself, which alone reads it, as `python program.py` would. A terminal does
not, because a task that outlives this client would take the next command's keys. Instead, a thread forwards
what is typed, through a pipe that ends with this client.
"""

from __future__ import annotations

import io
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oarlock.cli.session.streams import own_stdin

_PIECE = 1 << 16
_LEAVING = 1.0  # seconds: if another process took what was typed, the thread is stuck in its read
_AGAIN = 0.2  # seconds between two checks whether a background client is in the foreground


@contextmanager
def relayed(wanted: bool) -> Iterator[int | None]:
    """The descriptor that a task can read inside a `with` block; None if none is there, or wanted."""
    own = own_stdin() if wanted else None
    if own is None or not os.isatty(own):
        yield own
        return
    reader, writer = os.pipe()
    ended, end = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_relay, args=(own, writer, ended), daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        os.close(end)
        thread.join(_LEAVING)
        os.close(ended)
        os.close(reader)


def _relay(terminal: int, writer: int, ended: int) -> None:
    """Forward what is typed, until Ctrl-D, a hangup, or the end of the client."""
    # This signal stops a background process that reads a terminal. Blocked, it becomes an error of the read.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])
    with open(writer, "wb", buffering=0) as pipe:
        while _is_ready(ended, terminal):
            if not _is_in_foreground(terminal):
                select.select([ended], [], [], _AGAIN)
                continue
            try:
                data = os.read(terminal, _PIECE)
            except OSError:
                if _is_in_foreground(terminal):
                    return
                continue
            if not data or not _pass_on(pipe, data, ended):
                return


def _is_ready(ended: int, terminal: int) -> bool:
    """Wait until there is something to read; False if the client ends before that."""
    return ended not in select.select([ended, terminal], [], [])[0]


def _pass_on(pipe: io.FileIO, data: bytes, ended: int) -> bool:
    """Write all of it as the task makes room; False if no process reads it any more, or the client ends."""
    while data:
        if ended in select.select([ended], [pipe], [])[0]:
            return False
        try:
            data = data[pipe.write(data) or 0 :]  # None: there is no room for it
        except BrokenPipeError:
            return False
    return True


def _is_in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True  # not this session's terminal: any process may read it
