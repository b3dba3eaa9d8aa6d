"""Orphans that ended do not stay as zombies; our own children are left to who waits for them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, subprocess, sys, time
from oarlock.system import processes
from oarlock.agent.net.loop import Loop
from oarlock.agent.orphans import Reaping

processes.adopt_orphans()
loop = Loop()
Reaping(loop, every=0.1)
# A shell that leaves a child behind, as a session of `oarlock exec` may.
shell = subprocess.Popen(["sh", "-c", "sleep 0.01 & echo $!"], stdout=subprocess.PIPE, text=True)
orphan = int(shell.stdout.read())
assert shell.wait() == 0
deadline = time.monotonic() + 60
while os.path.exists(f"/proc/{orphan}"):
    assert time.monotonic() < deadline, open(f"/proc/{orphan}/stat").read()
    loop.turn()
ours = subprocess.Popen(["sh", "-c", "exit 7"])
while ours.pid not in processes.ended_children():
    assert time.monotonic() < deadline
loop.after("one look", 0, lambda: None)
loop.turn()
assert ours.wait() == 7
print("reaped")
"""


def test_orphans_are_reaped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "reaped\n", done.stderr
