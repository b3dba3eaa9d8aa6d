"""Where a served model answers, and how to ask it."""

from __future__ import annotations

from typing import NamedTuple


class ServedAt(NamedTuple):
    """The addresses of a server that answers."""

    url: str  # for clients beside it
    curl: str  # a request that works from this machine
    forward: str = ""  # a command that has to run meanwhile, where this machine cannot reach it
    outside: str = ""  # the URL for everybody else, if it has one
