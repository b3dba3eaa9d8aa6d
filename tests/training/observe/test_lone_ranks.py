"""Workers that train apart without a word: said once, by the leading rank, and only where torch trains."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.support.task_lines import read_to_end

# One interpreter for all cases: importing torch is what costs.
PROGRAM = """
import os, sys, torch, oarlock
from oarlock.training.observe import lone_ranks

def train(steps, name):
    oarlock.current().note(name)
    line = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(line.parameters(), 0.1)
    for _ in range(steps):
        line(torch.ones(1, 1)).sum().backward()
        optimizer.step()

os.environ.update(OARLOCK_RANK="0", OARLOCK_WORLD="1")
lone_ranks.install()
train(20, "one worker")
os.environ.update(OARLOCK_RANK="1", OARLOCK_WORLD="2")
lone_ranks.install()
train(20, "another than the leading rank")
os.environ.update(OARLOCK_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
lone_ranks.install()
train(9, "nine steps")
train(20, "more steps")
train(20, "said once")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
lone_ranks._watch(sys.modules["torch.optim.optimizer"])
train(20, "a group")
torch.distributed.destroy_process_group()
train(20, "a group that has ended")
"""


@pytest.mark.slow
def test_a_gang_that_forms_no_group_is_warned_of_once() -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    ours, theirs = socket.socketpair()
    env = {**os.environ, "OARLOCK_RUN": "r", "OARLOCK_FD": str(theirs.fileno())}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, pass_fds=[theirs.fileno()])
    theirs.close()
    events: list[dict[str, Any]] = [json.loads(line) for line in read_to_end(ours)]
    assert process.wait(300) == 0
    warned = [before["text"] for before, event in zip(events, events[1:]) if event["kind"] == "warning"]
    assert warned == ["more steps"]
    warning = next(event for event in events if event["kind"] == "warning")
    assert warning["text"].startswith("2 workers, but the program has formed no process group")
    assert "init_process_group" in warning["fix"]
