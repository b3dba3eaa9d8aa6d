"""Where things are inside a pod, for the processes in it and for the client that sends them. Pure."""

from __future__ import annotations

from oarlock.system.pods.places import CODE, ROOT, SECRET, STORE, WORK

__all__ = [
    "AGENT",
    "CODE",
    "PORT",
    "ROOT",
    "SEAT_OFFSET",
    "SECRET",
    "STORE",
    "WORK",
    "program_folder",
    "record_folder",
]

AGENT = f"{WORK}/agent"  # the part of Oarlock that travels, unpacked
PORT = 7077  # the coordinator's
SEAT_OFFSET = "OARLOCK_SEAT_OFFSET"  # a variable: the index in its role of a Job's first task


def record_folder(run: str) -> str:
    """Where a run's record is on the claim."""
    return f"{STORE}/runs/{run}"


def program_folder(run: str) -> str:
    """Where a run's program is, and its tasks start: on the claim, as programs save next to themselves."""
    return f"{record_folder(run)}/program"
