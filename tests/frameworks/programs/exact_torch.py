"""PyTorch DDP with Dropout, a schedule for the learning rate, and a step that takes a while.

train STEPS SAVE PAUSE DROPOUT WIDTH: saved every so many steps, a pause of so many seconds in each.
"""

import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from diary import Diary
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import oarlock

total, save, pause, dropout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
width = int(sys.argv[5])
task = oarlock.current()
if task.world > 1:
    dist.init_process_group("gloo")

torch.manual_seed(1)
x = torch.randn(240, 16)
y = x.sum(1, keepdim=True)
model = torch.nn.Sequential(
    torch.nn.Linear(16, width), torch.nn.GELU(), torch.nn.Dropout(dropout), torch.nn.Linear(width, 1)
)
net = DistributedDataParallel(model) if task.world > 1 else model
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)

batches = oarlock.data.Batches(240, 24, seed=3)
state = oarlock.State(model=net, optimizer=optimizer, schedule=schedule)
diary = Diary()
for step in state.steps(total, save=save, keep=1000, batches=batches):
    mine = batches.mine(step)
    diary.began(step, mine)
    loss = mse_loss(net(x[mine]), y[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    time.sleep(pause)
    diary.made(step, loss.detach())
    state.report(loss=loss.detach())

if task.is_chief:
    task.model.mkdir(parents=True, exist_ok=True)
    np.savez(task.model / "final.npz", *[one.detach().numpy() for one in model.parameters()])
