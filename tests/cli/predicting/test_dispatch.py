"""Batches go to whichever server is free, and their answers come in order, each exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from oarlock.cli.predicting import dispatch
from oarlock.cli.predicting.model_client import Unanswered
from oarlock.errors import OarlockError

SECONDS = 60.0


@dataclass
class Server:
    """Answers ten times a number; told to, it is away, loses what it is asked, or never comes."""

    name: str = "a"
    loses: int = 0  # questions in a row
    never: str = ""  # why it will not come
    asked: list[int] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def is_ready(self) -> bool:
        if self.never:
            raise OarlockError(self.never)
        return True

    def renew(self) -> None:
        """There is no connection."""


def ask(server: Server, batch: int) -> int:
    server.asked.append(batch)
    if server.loses:
        server.loses -= 1
        raise Unanswered(f"{server.name} is lost")
    if batch < 0:
        raise OarlockError(f"{batch} is negative")
    return 10 * batch


def test_the_answers_come_in_the_order_of_the_input() -> None:
    slow, quick = Server("slow"), Server("quick")

    def in_turn(server: Server, batch: int) -> int:
        if server is slow:
            assert slow.may_answer.wait(SECONDS)
        elif len(quick.asked) == 6:
            slow.may_answer.set()
        return ask(server, batch)

    found = list(dispatch.answered([slow, quick], range(20), in_turn))
    assert found == [(number, 10 * number) for number in range(20)]
    assert len(quick.asked) >= 7, "one server did not wait for the other"
    assert sorted(slow.asked + quick.asked) == list(range(20)), "each is asked once"


def test_a_batch_that_is_lost_is_asked_again() -> None:
    server = Server(loses=3)
    found = list(dispatch.answered([server], range(3), ask))
    assert found == [(0, 0), (1, 10), (2, 20)]
    assert server.asked == [0, 0, 0, 0, 1, 2]


def test_another_server_takes_over_while_one_is_away() -> None:
    other = Server("other")

    class Lost(Server):
        def is_ready(self) -> bool:
            return not self.asked or len(other.asked) > 4  # it comes back after that

    gone = Lost(loses=1)
    found = list(dispatch.answered([gone, other], range(30), ask))
    assert found == [(number, 10 * number) for number in range(30)]
    assert {*gone.asked, *other.asked} == {*range(30)}


def test_a_batch_that_ends_every_server_is_given_up() -> None:
    with pytest.raises(OarlockError, match=r"a is lost \(asked 4 times\)"):
        list(dispatch.answered([Server("a", loses=100)], range(3), ask))


def test_a_batch_is_not_given_up_because_all_connections_were_cut_at_once() -> None:
    class Cut(Server):
        def renew(self) -> None:
            self.loses = 0

    servers = [Cut(str(number), loses=100) for number in range(6)]
    assert list(dispatch.answered(servers, range(3), ask)) == [(0, 0), (1, 10), (2, 20)]


def test_what_the_model_refuses_comes_in_its_place() -> None:
    found = dispatch.answered([Server(), Server()], [1, 2, -1, 3], ask)
    assert [next(found), next(found)] == [(1, 10), (2, 20)]
    with pytest.raises(OarlockError, match="-1 is negative"):
        next(found)


def test_what_cannot_be_read_comes_after_what_was() -> None:
    def read() -> Iterator[int]:
        yield from (1, 2)
        raise OarlockError("line 3 is no JSON")

    found = dispatch.answered([Server(), Server(), Server()], read(), ask)
    assert [next(found), next(found)] == [(1, 10), (2, 20)]
    with pytest.raises(OarlockError, match="line 3"):
        next(found)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_an_answer_is_given_before_the_next_example_is_there(servers: int) -> None:
    """A program that writes into the pipe may wait for the answer to its first line."""
    given = threading.Semaphore(0)

    def batches() -> Iterator[int]:
        for number in range(4):
            assert number == 0 or given.acquire(timeout=SECONDS), "the answer waits for the next example"
            yield number

    for number, answer in dispatch.answered([Server() for _ in range(servers)], batches(), ask):
        assert answer == 10 * number
        given.release()


def test_servers_that_never_come_leave_the_work_to_the_others() -> None:
    servers = [Server("a", never="its image is missing"), Server("b")]
    assert [answer for _, answer in dispatch.answered(servers, range(5), ask)] == [0, 10, 20, 30, 40]
    assert dispatch.from_any(servers, lambda one: one.name) == "b"
    with pytest.raises(OarlockError, match="its image is missing"):
        list(dispatch.answered(servers[:1], range(5), ask))
    with pytest.raises(OarlockError, match="its image is missing"):
        dispatch.from_any(servers[:1], lambda one: one.name)


def test_no_thread_outlives_the_answers() -> None:
    left = dispatch.answered([Server(), Server()], range(1000), ask)
    next(left)
    left.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name in ("predict", "examples"):
            thread.join(SECONDS)
            assert not thread.is_alive()
