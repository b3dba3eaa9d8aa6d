"""One connection in the loop: what the other side said before it went is heard."""

from __future__ import annotations

import socket

from oarlock.agent.net.connection import Connection
from oarlock.agent.net.loop import Loop
from oarlock.agent.protocol.wire import Message, pack
from tests.support.waiting import eventually


def test_last_words_are_heard_although_nobody_listens_on_the_other_side_any_more() -> None:
    """An agent that leaves closes with our messages unread, so its kernel resets the connection."""
    loop, heard, closed = Loop(), list[Message](), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours = server.accept()[0]
    connection = Connection(loop, ours, heard.append, closed.append)
    connection.send({"beat": 1})
    eventually(lambda: theirs.recv(1, socket.MSG_PEEK), "the beat at the other side")
    theirs.sendall(pack({"status": 1}) + pack({"bye": "it was asked to leave"}))
    theirs.close()
    for _ in range(3):
        connection.send({"beat": 1})
    loop.after("patience", 60, lambda: closed.append("nothing more came"))
    while not closed:
        loop.turn()
    assert heard == [{"status": 1}, {"bye": "it was asked to leave"}]
    assert closed == ["closed by the other side"] or "reset" in closed[0].lower()


def test_an_error_at_a_message_closes_this_connection_only() -> None:
    """A bug of ours that a message triggers must not end the loop."""
    loop, closed, odd = Loop(), list[str](), list[Exception]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours = server.accept()[0]

    def stumble(message: Message) -> None:
        raise KeyError("task")

    connection = Connection(loop, ours, stumble, closed.append)
    connection.on_bad_message = odd.append
    with theirs:
        theirs.sendall(pack({"status": 1}))
        loop.after("patience", 60, lambda: closed.append("nothing came"))
        while not closed:
            loop.turn()
    assert closed == ["KeyError at its message"]
    assert isinstance(odd[0], KeyError)
