"""Trains with one library after the other and reports nothing, until the end: each is a better source than
the one before it, or as good."""

import tempfile

import accelerate
import keras
import lightning
import numpy as np
import torch
import tqdm
import transformers

import oarlock
from oarlock.training.observe import hooks, observer

hooks.install()
task = oarlock.current()


def part(name):
    """What follows is of this library."""
    observer.channel.flush()
    task.note(name)


def batches(count):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4 * count, 2)), batch_size=4)


def with_tqdm():
    for _ in tqdm.tqdm(range(5), unit="B", mininterval=0):
        pass  # a download is no progress
    bar = tqdm.tqdm(range(6), mininterval=0)
    for step in bar:
        list(tqdm.tqdm(range(9), mininterval=0, leave=False))  # neither is what is below the outermost bar
        bar.set_postfix(loss=float(6 - step))


def with_accelerate():
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(2, 1)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), batches(8))
    for (x,) in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.line(x)
        return {"loss": (y.squeeze(-1) - labels).pow(2).mean(), "logits": y}


def with_transformers():
    data = [{"x": torch.ones(2), "labels": torch.tensor(1.0)}] * 20
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            logging_steps=1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        )
        transformers.Trainer(model=Line(), args=args, train_dataset=data).train()


class Module(lightning.LightningModule):
    def __init__(self, fails_at=None):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)
        self.fails_at = fails_at

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise ArithmeticError("as planned")
        return self.line(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def with_lightning(fails_at=None):
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    try:
        trainer.fit(Module(fails_at), batches(4))
    except ArithmeticError:
        pass


def with_keras():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((28, 2)), np.ones((28, 1)), batch_size=4, epochs=2, verbose=0)


if __name__ == "__main__":
    for library in (with_tqdm, with_accelerate, with_transformers, with_lightning, with_keras):
        part(library.__name__)
        library()
    part("with_failure")
    with_lightning(fails_at=2)
    part("with_weaker")
    with_tqdm()
    part("with_own")
    task.report(3, total=4)
    with_keras()
