"""Ports for servers that tests start: nobody else takes them, however long the server is not there yet or
not there any more. They are below those that the kernel gives away (32768 and up) and those of runs (15000
and up), and each process of a test run has its own."""

from __future__ import annotations

import os
import random
import socket

_FIRST, _EACH = 11000, 500  # so many for a process; there is room for eight


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    ports = range(_FIRST + number * _EACH, _FIRST + (number + 1) * _EACH)
    found = [port for port in random.sample(ports, len(ports)) if _is_free(host, port)]
    assert len(found) >= count, f"no {count} free ports between {ports.start} and {ports.stop} on {host}"
    return found[:count]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no obstacle to a server
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
