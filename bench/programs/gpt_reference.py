"""The usual way to train a GPT on one GPU: fp32 weights, autocast, torch.compile, fused AdamW, random tokens.

The network is gpt_torch's with heads of 64 numbers, and the size is the same; a line is printed every so many
steps, as gpt_torch does, so that both are timed alike.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt_torch"))
from model import GPT, SIZES  # type: ignore[import-not-found]


def main() -> None:
    given = _arguments()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    size = SIZES[given.size]
    config = replace(size, heads=size.width // 64, vocabulary=50_257)
    model = GPT(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, betas=(0.9, 0.99), fused=True)
    compiled: Any = torch.compile(model)
    for step in range(given.steps):
        rows = torch.randint(0, config.vocabulary, (given.batch, config.context + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % given.show == 0:
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="124m")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--show", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
