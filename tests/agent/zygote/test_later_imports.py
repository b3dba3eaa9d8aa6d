"""What the first step of a program imports, a restarted one finds in the zygote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from oarlock.agent.zygote import preimport
from tests.support.gangs import Gang

PROGRAM = """
import sys, time
had = "torch._dynamo" in sys.modules
import torch
import oarlock
me = oarlock.current()
print(f"generation {me.generation} had it: {had}", flush=True)
torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
for step in range(1, 10**6):
    me.report(step=step)
    time.sleep(0.01)
    if had:
        break
"""


def test_a_restart_finds_what_the_first_step_imported(start: Callable[..., Gang]) -> None:
    gang = start(PROGRAM, roles={"worker": 1}, limits={"restarts": 3}).until_step(5)
    gang.kill("worker-0")
    assert gang.end().state == "succeeded"
    told = [line for line in gang.lines if "had it" in line]
    assert told == ["worker-0| generation 1 had it: False", "worker-0| generation 2 had it: True"]


FIRST = """
import __main__
__main__.begun.set()
__main__.go_on.wait(300)
whole = True
"""
THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
FORK = """
import os, signal, sys, threading
from oarlock.agent.zygote import later_imports, preimport

preimport.LATER = ("first", "broken", "thread")
begun, go_on = threading.Event(), threading.Event()
later = later_imports.LaterImports()
later.finish()
later.add(["first", "json.tool", "broken"])
assert begun.wait(300)
signal.signal(signal.SIGALRM, lambda *_: go_on.set())
signal.setitimer(signal.ITIMER_REAL, 0.1)  # the thread of a timer could be taken for the import's
nice, threads = os.getpriority(os.PRIO_PROCESS, 0), threading.active_count()
later.finish()
assert sys.modules["first"].whole and later.why_not is None, later.why_not
assert "broken" not in sys.modules and "json.tool" not in sys.modules
assert threading.active_count() < threads and os.getpriority(os.PRIO_PROCESS, 0) == nice
later.add(["thread"])
later.finish()
assert later.why_not == "importing it starts a thread", later.why_not
"""


def test_a_fork_waits_for_the_import_under_way(tmp_path: Path) -> None:
    for name, content in {"first": FIRST, "broken": "1 / 0", "thread": THREAD}.items():
        (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "program.py").write_text(FORK)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def test_they_are_modules_of_the_frameworks() -> None:
    assert {name.partition(".")[0] for name in preimport.LATER} == {"torch"}
