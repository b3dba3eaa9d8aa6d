"""Ending what is left of processes, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

# One that cannot die: a debugger, which is its parent here, holds it at its exit.
HELD = """
import ctypes, os, signal, subprocess, sys, time
from oarlock.system import processes

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, TRACE_EXIT = 0x4206, 0x40
ready, says = os.pipe()
code = "import os, sys, time; from oarlock.system import processes; "
code += "processes.set_name(sys.argv[1].encode()); os.write(int(sys.argv[2]), b'x'); time.sleep(1000)"
held = subprocess.Popen([sys.executable, "-c", code, sys.argv[1], str(says)], pass_fds=[says])
os.read(ready, 1)
if libc.ptrace(SEIZE, held.pid, None, ctypes.c_void_p(TRACE_EXIT)) != 0:
    sys.exit(77)
began = time.monotonic()
processes.end_orphans(limit=float(sys.argv[2]), unawaited=processes.WRITER)
print("waited" if time.monotonic() - began >= float(sys.argv[2]) else "left it to the kernel")
sys.stdout.flush()
os._exit(0)  # the debugger is gone: what it holds can die
"""


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [("python-worker", "0.5", "waited"), ("oarlock-writer", "300", "left it to the kernel")],
)
def test_a_killed_writer_is_not_waited_for_and_others_are(name: str, limit: str, said: str) -> None:
    words = [sys.executable, "-c", dedent(HELD), name, limit]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode == 77:
        pytest.skip("this machine allows no debugger")
    assert done.stdout == f"{said}\n", done.stderr
