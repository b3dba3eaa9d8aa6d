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
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(1024, 64), torch.randint(0, 10, (1024,))
for step in marks.steps(given.steps):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if given.report:
        me.report(step, total=given.steps, loss=loss.detach())
dist.destroy_process_group()
