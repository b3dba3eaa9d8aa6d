"""Where things are inside a pod, for all on this side of it. Pure.

The agent, which imports nothing that stays behind, has its own word for the root of it all: agent/pod.py.
"""

from __future__ import annotations

ROOT = "/oarlock"
CODE = f"{ROOT}/code"  # what the client sent
SECRET = f"{ROOT}/secret"
WORK = f"{ROOT}/work"  # the pod's own
STORE = f"{ROOT}/store"  # the claim
AGENT = f"{WORK}/agent"  # what travels of Oarlock, unpacked
PROGRAM = f"{WORK}/program"
