"""Messages with descriptors on a line that never waits."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from oarlock.system import fd_frames

Pair = tuple[fd_frames.FrameSocket, fd_frames.FrameSocket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """With as little room as the kernel gives."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    left, right = map(fd_frames.FrameSocket, ends)
    yield left, right
    left.close()
    right.close()


def exchange(*lines: fd_frames.FrameSocket) -> list[list[tuple[dict[str, Any], tuple[int, ...]]]]:
    """What each has received, once nobody is behind and nothing is left to read."""
    got: list[list[tuple[dict[str, Any], tuple[int, ...]]]] = [[] for _ in lines]
    while True:
        readable, _, _ = select.select([line.sock for line in lines], [], [], 0)
        if not readable and not any(line.is_behind for line in lines):
            return got
        for line, received in zip(lines, got):
            line.flush()
            line.fill()
            received += iter(line.take, None)


def test_two_sides_that_both_send_without_reading_lose_nothing(pair: Pair) -> None:
    left, right = pair
    texts = [f"{number} " + "x" * 3000 for number in range(300)]
    for text in texts:
        left.send({"say": text})
        right.send({"say": text})
    assert left.is_behind
    assert right.is_behind
    for received in exchange(left, right):
        assert [message["say"] for message, _ in received] == texts


def test_descriptors_come_with_their_own_message(pair: Pair) -> None:
    left, right = pair
    pipes = [os.pipe() for _ in range(40)]
    for number, (read, write) in enumerate(pipes):
        left.send({"number": number, "long": "x" * 3000}, (read, write) if number % 2 else ())
        os.close(write)
    _, received = exchange(left, right)
    for message, fds in received:
        assert len(fds) == 2 * (message["number"] % 2)
        if fds:
            os.write(fds[1], b"for %d" % message["number"])
            assert os.read(pipes[message["number"]][0], 100) == b"for %d" % message["number"]
            assert not os.get_inheritable(fds[0])
        for fd in (*fds, pipes[message["number"]][0]):
            os.close(fd)


def test_a_closed_line_holds_on_to_no_descriptor(pair: Pair) -> None:
    left, right = pair
    read, write = os.pipe()
    for _ in range(300):
        left.send({"long": "x" * 3000}, (write,))
    os.close(write)
    right.fill()
    left.close()
    right.close()
    assert os.read(read, 1) == b"", "somebody still holds the writing end"
    os.close(read)


def test_the_end_of_the_other_side_is_seen_behind_its_last_words(pair: Pair) -> None:
    left, right = pair
    left.send({"last": "words"})
    left.close()
    right.send({"to": "nobody"})
    assert not right.is_behind
    while right.fill():
        pass
    assert right.take() == ({"last": "words"}, ())


class _ReadAtOnce(socket.socket):
    """Its receiver has read everything and left before `sendmsg` returns."""

    receiver: socket.socket

    def sendmsg(self, *words: Any) -> int:
        sent = super().sendmsg(*words)
        self.receiver.recv(sent)
        self.receiver.close()
        return sent


def test_a_receiver_that_leaves_after_the_message_has_it() -> None:
    ours, theirs = socket.socketpair()
    with _ReadAtOnce(fileno=ours.detach()) as sender:
        sender.receiver = theirs
        fd_frames.send(sender, {"kind": "launch"})
