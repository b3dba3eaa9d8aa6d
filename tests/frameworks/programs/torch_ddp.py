"""Written for torchrun: DDP on gloo, nothing of ours."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert int(os.environ["LOCAL_RANK"]) == rank
assert os.environ["TORCHELASTIC_RUN_ID"]

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.arange(32.0).reshape(8, 4)[rank::world] / 32
for _ in range(20):
    loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
gathered = [torch.zeros_like(weights) for _ in range(world)]
dist.all_gather(gathered, weights)
assert all(torch.equal(weights, other) for other in gathered)
print(f"rank {rank} of {world}: loss {loss.item():.4f}, all weights equal")
dist.destroy_process_group()
