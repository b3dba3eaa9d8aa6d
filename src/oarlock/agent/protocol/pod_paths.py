"""Where things are inside a pod, for who is in it and for who sends it there. Pure."""

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

AGENT = f"{WORK}/agent"  # what travels of Oarlock, unpacked
PORT = 7077  # the coordinator's
SEAT_OFFSET = "OARLOCK_SEAT_OFFSET"  # a variable: the index of a Job's first task in its role


def record_folder(run: str) -> str:
    """Where a run's record is on the claim."""
    return f"{STORE}/runs/{run}"


def program_folder(run: str) -> str:
    """Where a run's program is and its tasks start: on the claim, because programs save beside themselves."""
    return f"{record_folder(run)}/program"
