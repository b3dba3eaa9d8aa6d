"""Linear regression by stochastic gradient descent with torch, one average of gradients a step."""

import os

import torch
import torch.distributed as dist

import oarlock

COUNT, STEPS = 96, 40


def train() -> None:
    dist.init_process_group("gloo")
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(COUNT, 5, generator=chance)
    targets = inputs @ torch.arange(1.0, 6.0) + 0.1 * torch.randn(COUNT, generator=chance)
    weights = torch.zeros(5)
    for _, mine in zip(
        range(STEPS), (part for _, part in oarlock.data.Batches(COUNT, 24, seed=3).from_step())
    ):
        errors = inputs[mine] @ weights - targets[mine]
        gradient = inputs[mine].T @ errors / len(mine)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient / dist.get_world_size()
    dist.destroy_process_group()
    place = (os.environ[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"))
    print("place", *place, flush=True)
    if oarlock.current().is_chief:
        print("weights", *(f"{weight:.6f}" for weight in weights.tolist()), flush=True)


train()
