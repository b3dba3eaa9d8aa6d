"""Clients that are slow, greedy, gone or no clients at all cost a connection and no more."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from oarlock.serving.http import client_connection
from tests.support.http_calls import get, post
from tests.support.served_models import ServedModels, echo, serving
from tests.support.waiting import eventually

PREDICT = "/v1/models/m:predict"
GOOD = {"instances": [[1, 2]]}
HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "PATIENCE", 0.5)
    monkeypatch.setattr(client_connection, "SWEEP", 0.05)


@pytest.fixture
def port() -> Iterator[int]:
    with serving(ServedModels([echo("float32")])) as port:
        yield port


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        yield client


def received(client: socket.socket) -> bytes:
    """All until the server closes; a reset is an end, too."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(65536):
            found += more
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/mod",
        b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        HEAD % 100 + b'{"instances": ',
        b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_a_request_that_never_ends_is_408(impatient: None, port: int, sent: bytes) -> None:
    with connected(port) as client:
        client.sendall(sent)
        answer = received(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive in time" in answer
    assert post(port, PREDICT, GOOD).status == 200


def test_a_client_that_trickles_is_cut(impatient: None, port: int) -> None:
    with connected(port) as client:
        client.sendall(HEAD % 10_000)
        client.settimeout(0.05)
        answer = b""

        def trickle() -> bool:
            nonlocal answer
            try:
                client.sendall(b" ")
                answer += client.recv(65536)
            except TimeoutError:
                return False
            except OSError:
                return True
            return b"408" in answer

        eventually(trickle, "end of a trickling request", every=0.05)


def test_a_slow_model_is_not_a_slow_client(impatient: None) -> None:
    """Nor is a connection that is kept alive and silent."""
    answer = threading.Event()
    model = echo("float32")
    model.compute = lambda inputs: {"y": inputs["x"]} if answer.wait(120) else {}
    with serving(ServedModels([model])) as port, connected(port) as client, connected(port) as slow:
        body = json.dumps(GOOD).encode()
        client.sendall(HEAD % len(body) + body)
        slow.sendall(b"GET /hea")
        assert b"408" in received(slow)  # that long it took
        answer.set()
        assert b"200 OK" in client.recv(65536)


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(port: int) -> None:
    """And who asks first (curl, above 1 MB) is not told to send it."""
    for more in (b"", b"Expect: 100-continue\r\n"):
        with connected(port) as client:
            client.sendall(HEAD.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n") % (33 << 20))
            assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_who_sends_two_requests_at_once_is_not_slow(impatient: None) -> None:
    """The second one waits here, unread, while the model works on the first."""
    answer = threading.Event()
    model = echo("float32")
    model.compute = lambda inputs: {"y": inputs["x"]} if answer.wait(120) else {}
    with serving(ServedModels([model])) as port, connected(port) as client, connected(port) as slow:
        body = json.dumps(GOOD).encode()
        client.sendall(HEAD % len(body) + body + HEAD % len(body) + body[:5])
        slow.sendall(b"GET /hea")
        assert b"408" in received(slow)  # that long it took
        answer.set()
        found = client.recv(65536)
        client.sendall(body[5:])
        while found.count(b"predictions") < 2:
            more = client.recv(65536)
            assert more, found
            found += more
        assert b" 408 " not in found


def test_endless_headers_are_431(port: int) -> None:
    with connected(port) as client:
        with contextlib.suppress(OSError):
            client.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
            for _ in range(2000):
                client.sendall(b"x" * 1000)
        assert received(client).startswith(b"HTTP/1.1 431 ")
    assert get(port, "/healthz").status == 200


def test_what_is_no_http_gets_a_sentence(port: int) -> None:
    for content in (b"\x16\x03\x01\x02\x00hello\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with connected(port) as client:
            client.sendall(content)
            answer = received(client)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"error"' in answer


def test_a_client_that_goes_takes_its_work_along() -> None:
    begun, answer = threading.Event(), threading.Event()
    model = echo("float32")

    def compute(inputs: object) -> dict[str, object]:
        begun.set()
        answer.wait(120)
        return {}

    model.compute = compute  # type: ignore[assignment]
    with serving(ServedModels([model])) as port:
        body = json.dumps(GOOD).encode()
        with connected(port) as client:
            client.sendall(HEAD % len(body) + body)
            assert begun.wait(120)
        eventually(lambda: model.dropped == 1, "cancelled prediction")
        eventually(lambda: b'code="499"} 1' in get(port, "/metrics").body, "count of it")
        answer.set()


def test_a_half_sent_body_and_a_closed_connection_are_no_error(port: int) -> None:
    for _ in range(20):
        with connected(port) as client:
            client.sendall(HEAD % 100 + b"{")
    assert post(port, PREDICT, GOOD).status == 200
    eventually(lambda: b'code="499"} 20' in get(port, "/metrics").body, "count of those that went")


def test_when_connections_run_out_the_longest_waiting_makes_room(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(client_connection, "MOST_CONNECTIONS", 10)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(port)) for _ in range(30)]
        for client in idle:
            with contextlib.suppress(OSError):
                client.sendall(b"GET /he")
        for _ in range(5):
            assert post(port, PREDICT, GOOD).status == 200
        assert received(idle[0]) == b""


def test_slow_requests_make_room_before_idle_connections(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(client_connection, "MOST_CONNECTIONS", 5)
    monkeypatch.setattr(client_connection, "SLOW", -1)
    body = json.dumps(GOOD).encode()
    with contextlib.ExitStack() as stack:
        idle = stack.enter_context(connected(port))
        idle.sendall(HEAD % len(body) + body)
        assert b"200 OK" in idle.recv(65536)
        slow = [stack.enter_context(connected(port)) for _ in range(20)]
        eventually(lambda: len(select.select(slow, [], [], 0)[0]) == 16, "16 that have made room")
        idle.sendall(HEAD % len(body) + body)
        assert b"200 OK" in idle.recv(65536)


def test_two_requests_sent_at_once_are_answered_in_order(port: int) -> None:
    bodies = [json.dumps({"instances": [[number, 0]]}).encode() for number in range(5)]
    with connected(port) as client:
        client.sendall(b"".join(HEAD % len(body) + body for body in bodies))
        found = b""
        while found.count(b"predictions") < len(bodies) or not found.endswith(b"}"):
            more = client.recv(65536)
            assert more, found
            found += more
    places = [found.index(b"[[%d.0,0.0]]" % number) for number in range(5)]
    assert places == sorted(places)


def test_a_refusal_before_the_body_leaves_the_connection_usable(port: int) -> None:
    body = b"x" * 300_000
    with connected(port) as client:
        client.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = received(client)
    assert b" 404 " in answer
    assert b" 200 " in answer


def test_an_answer_that_nobody_reads_is_dropped(impatient: None) -> None:
    large = echo("float32", (None, 1000))
    rows = json.dumps({"instances": [[0.123456] * 1000] * 500}).encode()
    models = ServedModels([large])
    with serving(models) as port, connected(port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        with contextlib.suppress(OSError):
            for _ in range(40):
                client.sendall(HEAD % len(rows) + rows)

        def is_cut() -> bool:
            try:
                client.send(b"x")
            except OSError:
                return True
            return False

        eventually(is_cut, "cut connection")
        assert get(port, "/healthz").status == 200
