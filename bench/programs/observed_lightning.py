"""`fit` of Lightning, which reports nothing: a hook sees it."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from marks import Marks, arguments

given = arguments()
steps = Marks(given, 0).steps(given.steps)
next(steps)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        hidden = [layer for _ in range(5) for layer in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*hidden, torch.nn.Linear(128, 10))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.cross_entropy(self.model(x), y)

    def on_train_batch_end(self, *_: Any) -> None:
        next(steps)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


examples = torch.utils.data.TensorDataset(torch.randn(24000, 128), torch.randint(0, 10, (24000,)))
trainer = lightning.Trainer(
    max_steps=given.steps,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(examples, batch_size=240))
