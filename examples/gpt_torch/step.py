"""One step of training, and a first one whose only use is to load what steps need on a GPU."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

import torch
from model import GPT, Config
from precision import HalfPrecision


def take_step(
    rows: torch.Tensor,
    model: GPT,
    optimizer: torch.optim.Optimizer,
    trained: torch.nn.Module,
    half: HalfPrecision | None,
) -> torch.Tensor:
    """Return the loss. The optimizer changes `model`; `trained`, which may be the same, computes."""
    loss = trained(rows[:, :-1], rows[:, 1:])
    loss.backward()
    if half:
        half.take_gradients()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if half:
        half.take_weights()
    return loss.detach()


def adamw(model: GPT, lr: float, device: torch.device) -> torch.optim.Optimizer:
    """Matrices are decayed; norms and the like are not."""
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr, betas=(0.9, 0.99), fused=device.type == "cuda")


def load_kernels(config: Config, windows: int, device: torch.device) -> Thread:
    """Take a step in a thread, with a network of one block that nobody keeps.

    A GPU loads a kernel when it is first used, half a second for all of a step's. This way they load while
    the real network is created and restored. Call it before random numbers count: it draws some.
    """
    with device:
        model = GPT(replace(config, layers=1, dropout=0.0))  # without dropout, the thread draws none
    half = HalfPrecision(model)
    rows = torch.zeros(windows, config.context + 1, dtype=torch.long, device=device)
    thread = Thread(target=take_step, args=(rows, model, adamw(model, 0.0, device), half.model, half))
    thread.start()
    return thread
