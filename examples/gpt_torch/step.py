"""One step of training, and how to load what it needs on a GPU before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import torch
from model import GPT, Config
from precision import HalfPrecision


def take_step(
    rows: torch.Tensor,
    model: GPT,
    optimizer: torch.optim.Optimizer,
    trained: Callable[..., torch.Tensor],
    half: HalfPrecision | None,
) -> torch.Tensor:
    """Return the loss. The optimizer changes `model`; `trained`, which may be the same, computes."""
    loss = trained(rows[:, :-1], rows[:, 1:])
    loss.backward()
    change_weights(model, optimizer, half)
    return loss.detach()


def change_weights(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, half: HalfPrecision | None
) -> None:
    if half:
        half.take_gradients()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if half:
        half.take_weights()


def adamw(model: torch.nn.Module, lr: float, device: torch.device) -> torch.optim.Optimizer:
    """Matrices are decayed; norms and the like are not."""
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr, betas=(0.9, 0.99), fused=device.type == "cuda")


def load_kernels(config: Config, windows: int, device: torch.device) -> list[Thread]:
    """Start threads that compute what a step does, for nothing.

    A GPU loads a kernel when it is first used, 0.3 s for all of a step's. This way they load while the real
    network is created and restored. Call it before random numbers count: it draws some.
    """
    with device:
        weights = torch.nn.Linear(8, 8)
        others = HalfPrecision(weights)
        for weight in others.model.parameters():
            weight.grad = torch.zeros_like(weight)
        changing = Thread(target=change_weights, args=(weights, adamw(weights, 0.0, device), others))
        changing.start()
        network = GPT(replace(config, layers=1, dropout=0.0))  # without dropout, the thread draws none
        rows = torch.zeros(windows, config.context, dtype=torch.long)
    half = HalfPrecision(network)
    computing = Thread(target=lambda: half.model(rows, rows).backward())
    computing.start()
    return [changing, computing]
