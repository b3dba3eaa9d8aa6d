"""Free ports for a generation's tasks.

They are below the range that the kernel uses for outgoing connections: a port inside it may be taken by the
time the task listens. A new choice per generation also avoids ports of the last one that are still in
TIME_WAIT.
"""

from __future__ import annotations

import random
import socket

_RANGE = range(15000, 32000)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find that many free ports, in random order. Raises OSError if there are not enough."""
    found: list[int] = []
    chance = random.Random()  # draws one by one: shuffling all of them took up to 0.3 s
    tried: set[int] = set()
    while len(tried) < len(_RANGE):
        if len(found) == count:
            return found
        port = chance.choice(_RANGE)
        if port not in tried and _is_free(host, port):
            found.append(port)
        tried.add(port)
    raise OSError(f"there are no {count} free ports between {_RANGE.start} and {_RANGE.stop} on {host}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
