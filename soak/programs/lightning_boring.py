"""Lightning's demo model under its Trainer, which saves and resumes by itself.

lightning_boring.py FOLDER EPOCHS
"""

import os
import sys

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel


class Counting(BoringModel):
    """Say the step, for whoever measures."""

    def on_train_batch_end(self, *_: object) -> None:
        """After the optimizer's step."""
        if self.global_rank == 0:
            print(f"step {self.global_step}", flush=True)


trainer = Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=int(sys.argv[2]),
    callbacks=[ModelCheckpoint(sys.argv[1], every_n_train_steps=10, save_last=True)],
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(Counting(), ckpt_path="last")
