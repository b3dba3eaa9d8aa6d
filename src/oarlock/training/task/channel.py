"""A task's channel to its agent: events go up, requests ("stop at the next step") come down.

The socket is inherited (`OARLOCK_FD`). Without a launcher there is none, and everything here does nothing.
Reporting must never slow a step: at most ten reports a second are sent; the newest is kept and sent at the
end. Requests are read when the program asks for one or, once there is a listener, by a thread.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oarlock.system.lines import Lines
from oarlock.system.polling import wait_for
from oarlock.training.task import busyness, gpu_values
from oarlock.training.task.throughput import Throughput

_INTERVAL = 0.1  # seconds between two reports
_RARE = 1.0  # seconds between two reports, from which on JAX has time to compute the value of each
# Seconds to wait for the values of the last report; after a failure they may depend on a task that is dead.
_LAST_VALUES, _LAST_WORDS = 3600.0, 2.0
_TURN = 0.05  # seconds that a report waits while another thread sends

_socket: socket.socket | None = None
_opened_by = 0  # a forked data loader must not write for its parent
_sent = 0.0
_kept: dict[str, Any] | None = None
_on_the_way: gpu_values.OnTheWay | None = None  # a report that waits for its GPU
_newest: dict[str, Any] = {}  # what this program reported last, by name; kept without a launcher, too
_reports_itself = False  # whether the program has reported: then what hooks observe is not sent
_throughput = Throughput()
_requests: set[str] = set()
_sending = threading.Lock()
_reading = threading.Lock()
_listened: socket.socket | None = None  # the line that only the listening thread reads
_listener: Callable[[str], None] | None = None
_after_first: Callable[[], None] | None = None


def report(event: dict[str, Any]) -> None:
    """Send progress. If a report was just sent, merge this one into the next."""
    global _reports_itself
    _reports_itself = True
    event = _measured(event)
    _newest.update(event)
    _report(event)


def expect(flops: float | None, peak: float | None, tokens_per_step: float | None) -> None:
    """Note what one step costs: from now on reports include the rate, those of hooks, too."""
    _throughput.expect(flops, peak, tokens_per_step)


def newest() -> dict[str, Any]:
    """Return the newest step and the newest value of each metric that the program itself reported."""
    return dict(_newest)


def report_observed(event: dict[str, Any]) -> None:
    """The same for what a hook saw (`observed` names it), as long as the program itself reports nothing."""
    if not _reports_itself:
        _report(_measured(event))


def hold_observed(event: dict[str, Any]) -> None:
    """Hold this for the end of the program, in place of what was held so far, unless another follows."""
    global _kept
    if not _reports_itself:
        _kept = {**_measured(event), "t": time.time()}


def _measured(event: dict[str, Any]) -> dict[str, Any]:
    step = event.get("step")
    return {**event, **_throughput.figures(step)} if isinstance(step, int) else event


def _report(event: dict[str, Any]) -> None:
    global _sent, _kept, _on_the_way
    now = time.monotonic()
    if _kept is not None and _kept.get("observed") != event.get("observed"):
        _kept = None  # from a weaker source: the two count different steps
    event = {**(_kept or {}), **event, "t": time.time()}
    since = now - _sent
    if since >= _INTERVAL and _on_the_way is not None:
        _on_the_way.catch_up()
    if since < _INTERVAL or (_on_the_way is not None and not _on_the_way.is_here):
        _kept = event
        return
    _sent, _kept = now, None
    earlier, _on_the_way = _on_the_way, None
    if any(map(gpu_values.is_awaited, event.values())):
        coming = gpu_values.OnTheWay(event)
        if since >= _RARE:
            coming.catch_up()
        if coming.is_here:
            event = coming.read()
        else:
            _on_the_way = coming
            if earlier is None:
                return
            event = {}
    _send_report({**(earlier.read() if earlier else {}), **event})


def _send_report(event: dict[str, Any]) -> None:
    global _after_first
    busy = busyness.share()
    share = {} if busy is None else {"busy": busy}
    send({**event, **share, "kind": "report"}, patience=0)
    if _after_first is not None and event.get("step"):
        action, _after_first = _after_first, None
        action()


def after_first_report(action: Callable[[], None]) -> None:
    """Call `action` once, after the report of the first step that is sent."""
    global _after_first
    _after_first = action


def flush(has_failed: bool = False) -> None:
    """Send the report that was held back. Waits for its values, but not for long after a failure."""
    global _kept, _on_the_way
    earlier, kept, _on_the_way, _kept = _on_the_way, _kept, None, None
    if open_line() is None or (earlier is None and kept is None):
        return  # a fork of the program has nothing to send
    waiting = [*([earlier] if earlier else []), gpu_values.OnTheWay(kept or {})]
    patience = _LAST_WORDS if has_failed or sys.exc_info()[0] else _LAST_VALUES
    with suppress(TimeoutError):
        wait_for(lambda: all(one.is_here for one in waiting), "last values", patience, every=0.001)
    event: dict[str, Any] = {"kind": "report"}
    for one in waiting:
        event.update(one.read(are_awaited=False))
    send(event)


def send(event: dict[str, Any], patience: float = 2.0) -> None:
    """Send an event, best effort: an agent that does not read, or is gone, must not stop training."""
    line = open_line()
    if line is None:
        return
    event.setdefault("t", time.time())
    text = json.dumps(event, default=_number).encode() + b"\n"
    if _sending.acquire(timeout=max(patience, _TURN)):
        try:
            _send(line, memoryview(text), patience)
        finally:
            _sending.release()


def _send(line: socket.socket, left: memoryview, patience: float) -> None:
    deadline = time.monotonic() + patience
    try:
        while left:
            try:
                left = left[line.send(left, socket.MSG_DONTWAIT) :]
                deadline = time.monotonic() + 2.0  # half a line would garble the next one
            except BlockingIOError:
                wait = deadline - time.monotonic()
                if wait <= 0 or not select.select([], [line], [], wait)[1]:
                    return
    except OSError:
        pass


def requested(what: str) -> bool:
    """Whether the agent has requested `what` ("stop") so far."""
    line = open_line()
    if line is not None and _listened is not line:
        with _reading:
            if _listened is not line:
                _read_requests(line)
    return what in _requests


def _read_requests(line: socket.socket) -> None:
    try:
        while True:
            text = line.recv(4096, socket.MSG_DONTWAIT)
            if not text:
                break
            _requests.update(text.decode().split())
    except OSError:
        pass


def listen(on_request: Callable[[str], None]) -> bool:
    """Start a thread that passes every request to `on_request`, and "" when the agent is gone. It replaces
    the previous listener. False without a launcher."""
    global _listened, _listener
    line = open_line()
    if line is None:
        return False
    _listener = on_request
    if _listened is not line:
        with _reading:
            _listened = line
        threading.Thread(target=_listen, args=(line,), name="oarlock-line", daemon=True).start()
    return True


def _listen(line: socket.socket) -> None:
    lines = Lines()
    while True:
        try:
            data = line.recv(4096)
        except OSError:
            data = b""
        requests = [request.decode(errors="replace") for request in lines.feed(data)]
        for text in requests if data else [*requests, ""]:
            _requests.add(text)
            if _listener is not None:
                _listener(text)
        if not data:
            return


def open_line() -> socket.socket | None:
    """The socket; None without one. The first process to open it owns it: the runner, before the program
    can fork."""
    global _socket, _opened_by
    number = os.environ.get("OARLOCK_FD")
    if number is None:
        return None
    if _socket is None:
        try:
            _socket = socket.socket(fileno=int(number))
        except (OSError, ValueError):
            del os.environ["OARLOCK_FD"]
            return None
        _opened_by = os.getpid()
        atexit.register(flush)
        # A copy of it in a data loader would hide this process's death from the agent.
        os.register_at_fork(after_in_child=_socket.close)
    return _socket if _opened_by == os.getpid() else None


def _number(value: Any) -> Any:
    """A value that JSON does not know: scalars of NumPy, TensorFlow, torch and JAX convert to float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
    except RuntimeError:  # the device failed, or gave this memory to another value
        return None
