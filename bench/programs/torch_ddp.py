"""Data parallel PyTorch on gloo, as written for torchrun."""

from __future__ import annotations

import torch
import torch.distributed as dist
from marks import Marks, arguments
from torch.nn.parallel import DistributedDataParallel

given = arguments()
if given.report:
    import oarlock

    me = oarlock.current()

dist.init_process_group("gloo")
marks = Marks(given, dist.get_rank())
torch.manual_seed(0)
# No tensor reaches 128 KiB, from where on malloc maps and unmaps each one: a step's speed would depend on the
# state of its process' heap, by a tenth from one process to the next.
hidden = [layer for _ in range(5) for layer in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
model = DistributedDataParallel(torch.nn.Sequential(*hidden, torch.nn.Linear(128, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(240, 128), torch.randint(0, 10, (240,))
for step in marks.steps(given.steps):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if given.report:
        me.report(step, total=given.steps, loss=loss.detach())
dist.destroy_process_group()
