"""Everything done at once to a model server that clients use."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tests.support.model_servers import BROKEN, Client, ModelServer, publish
from tests.support.waiting import eventually

_HALVES = (
    b"",
    b"POST /v1/mod",
    b"POST /v1/models/sums:predict HTTP/1.1\r\nContent-Len",
    b"POST /v1/models/sums:predict HTTP/1.1\r\nContent-Length: 500\r\n\r\n{",
)


class Faults:
    """Each method does one thing and returns once its effect is there: a slow machine does all of them."""

    def __init__(self, server: ModelServer, folder: Path, asking: list[Client], seed: int) -> None:
        self.server = server
        self.folder = folder
        self.asking = asking
        self.chance = random.Random(seed)
        self.kills = 0
        self.version = 1
        self.factor = 1

    def kill(self) -> None:
        """A replica, whatever it is doing."""
        alive = self.server.replicas
        if alive:
            self.chance.choice(alive).kill()
            self.kills += 1
        self.until_answers()

    def publish(self) -> None:
        """A newer version, until all clients have seen it."""
        self.version += 1
        self.factor = self.version
        publish(self.folder, self.factor)
        self._until(
            lambda: all(self.factor in one.versions for one in self.asking), f"version {self.version}"
        )

    def publish_broken(self) -> None:
        """A newer version that does not load."""
        self.version += 1
        publish(self.folder, 0, program=BROKEN)
        self.server.until_said(f"version {self.version} of sums does not load")

    def scale(self, replicas: int) -> None:
        self.server.change(replicas=replicas)
        self._until(lambda: len(self.server.replicas) == replicas, f"{replicas} replicas")

    def until_answers(self, more: int = 5) -> None:
        """Until every client has so many more answers."""
        before = [one.answers for one in self.asking]
        self._until(
            lambda: all(one.answers >= count + more for one, count in zip(self.asking, before)), "answers"
        )

    def check(self) -> None:
        """Nothing is wrong, and only deaths cost a client anything: the request that it had in flight."""
        for one in self.asking:
            assert not one.wrong, one.wrong[:5]
            statuses = [failure for failure in one.failures if failure[:3].isdecimal()]
            assert not statuses, f"{statuses[:5]}\n{self.server.said[-4000:]}"
            assert len(one.failures) <= self.kills, one.failures

    def _until(self, is_true: Callable[[], bool], what: str) -> None:
        eventually(is_true, what, 300, evidence=lambda: self.server.said[-2000:])


@contextmanager
def half_open(server: ModelServer, count: int) -> Iterator[None]:
    """Connections that have begun a request and never end it."""
    with ExitStack() as stack:
        for number in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 300))
            one.sendall(_HALVES[number % len(_HALVES)])
        yield


def memory(server: ModelServer) -> int:
    """Bytes that the supervisor and its replicas have for themselves."""
    found = [psutil.Process(server.process.pid), *server.replicas]
    return sum(one.memory_full_info().uss for one in found)
