"""Five hundred tasks on one machine: they start, report and end, also after their zygote was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from oarlock.system import processes
from tests.support.gangs import STEPS, Gang

TASKS = 512
# The first generation waits to be killed.
PROGRAM = (
    STEPS
    + """
train(1)
while me.generation == 1:
    time.sleep(0.05)
"""
)


@pytest.mark.timeout(1800)
def test_hundreds_of_tasks_and_a_zygote_that_dies(start: Callable[..., Gang]) -> None:
    gang = start(PROGRAM, roles={"worker": TASKS})

    def reported() -> int:
        return sum(task.step == 1 for task in gang.state.tasks.values())

    gang.until(lambda _: reported() == TASKS, "first step of every task", 600)
    task, agent = gang.pid("worker-0"), gang.state.agent
    assert agent is not None
    [zygote] = [pid for pid in processes.descendants(agent) if task in processes.descendants(pid)]
    os.kill(zygote, signal.SIGKILL)
    assert gang.end(900).state == "succeeded"
    assert (gang.state.generation, reported()) == (2, TASKS), gang.told()
