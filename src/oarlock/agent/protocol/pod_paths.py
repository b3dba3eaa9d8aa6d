"""Where things are inside a pod, for who is in it and for who sends it there. Pure."""

from __future__ import annotations

ROOT = "/oarlock"
CODE = f"{ROOT}/code"  # what the client sent
SECRET = f"{ROOT}/secret"
WORK = f"{ROOT}/work"  # the pod's own
STORE = f"{ROOT}/store"  # the claim
AGENT = f"{WORK}/agent"  # what travels of Oarlock, unpacked
PROGRAM = f"{WORK}/program"
PORT = 7077  # the coordinator's
SEAT_OFFSET = "OARLOCK_SEAT_OFFSET"  # a variable: the index of a Job's first task in its role
