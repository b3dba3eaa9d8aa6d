"""Who holds a gang back: all make the same steps at the same rate, and one of them never waits."""

from __future__ import annotations

from pathlib import Path

from tests.support.gangs import Gang

PROGRAM = """
import os, time, torch, torch.distributed as dist, oarlock
task = oarlock.current()
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
state = oarlock.State(net=net, optimizer=optimizer)
for step in state.steps(1_000_000, save=None):
    is_slow = task.index == 1 or os.path.exists("all-are-slow")
    time.sleep(0.1 if is_slow else 0.02)
    loss = net(torch.randn(8, 64)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def test_it_is_the_one_that_the_others_wait_for(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", PROGRAM)
    # Whom a busy machine holds up for a moment may be named for a moment.
    gang.until(lambda gang: _straggler(gang) == "worker-1", "straggler worker-1")
    (tmp_path / "job" / "all-are-slow").touch()
    began = gang.state.tasks["worker-0"].step or 0
    gang.until(
        lambda gang: _straggler(gang) is None and (gang.state.tasks["worker-0"].step or 0) > began,
        "step without a straggler",
    )


def _straggler(gang: Gang) -> str | None:
    straggler = gang.state.straggler
    return straggler.name if straggler else None
