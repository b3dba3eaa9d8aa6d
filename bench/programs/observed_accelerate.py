"""A loop with accelerate and tqdm, which reports nothing: hooks see it."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from marks import Marks, arguments
from tqdm import tqdm

given = arguments()
marks = Marks(given, 0)
accelerator = Accelerator(cpu=True)
hidden = [layer for _ in range(5) for layer in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
model = torch.nn.Sequential(*hidden, torch.nn.Linear(128, 10))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
x, y = torch.randn(240, 128), torch.randint(0, 10, (240,))
for _ in tqdm(marks.steps(given.steps), total=given.steps):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
