"""Who holds a gang back: all make the same steps at the same rate, and one of them never waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gangs import Gang

PROGRAM = """
import time, torch, torch.distributed as dist, oarlock
task = oarlock.current()
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
state = oarlock.State(net=net, optimizer=optimizer)
for step in state.steps(100_000, save=None):
    time.sleep({slow} if task.index == 1 else {others})
    loss = net(torch.randn(8, 64)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("slow", "others", "found"), [(0.1, 0.02, "worker-1"), (0.1, 0.1, None)])
def test_it_is_the_one_that_the_others_wait_for(
    home: Path, tmp_path: Path, slow: float, others: float, found: str | None
) -> None:
    gang = Gang(tmp_path / "job", PROGRAM.format(slow=slow, others=others))
    gang.until(
        lambda gang: all(
            task.busy is not None and (task.step or 0) > 60 for task in gang.state.tasks.values()
        ),
        "both to say how busy they are",
    )
    # Whom a busy machine holds up for a moment may be named for a moment.
    gang.until(lambda gang: _straggler(gang) == found, f"straggler {found}")


def _straggler(gang: Gang) -> str | None:
    straggler = gang.state.straggler
    return straggler.name if straggler else None
