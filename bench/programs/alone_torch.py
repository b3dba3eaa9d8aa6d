"""PyTorch in one process, without a process group."""

from __future__ import annotations

import torch
from marks import Marks, arguments

given = arguments()
marks = Marks(given, 0)
model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(240, 128), torch.randint(0, 10, (240,))
for _ in marks.steps(given.steps):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
