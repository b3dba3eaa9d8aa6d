"""Installs the hooks: each only when the program imports its library."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Callable

from oarlock.training.frameworks.import_hooks import when_imported
from oarlock.training.observe import lone_ranks, loops, observer, own_steps

_HOOKS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "keras": ("keras", loops.keras),
    "tf_keras": ("keras", loops.keras),
    "lightning.pytorch.trainer.call": ("lightning", loops.lightning),
    "pytorch_lightning.trainer.call": ("lightning", loops.lightning),
    "transformers.trainer_callback": ("transformers", loops.transformers_events),
    "transformers.trainer": ("transformers", loops.transformers_train),
    "accelerate.accelerator": ("accelerate", own_steps.accelerator),
    "accelerate.optimizer": ("accelerate", own_steps.accelerated_optimizer),
    "tqdm.std": ("tqdm", own_steps.tqdm),
}


def install() -> None:
    """Watch this task, unless its job says `observe: false`."""
    if os.environ.get("OARLOCK_OBSERVE") == "0":
        return
    for module, (source, hook) in _HOOKS.items():
        when_imported(module, observer.careful(source, hook))
    lone_ranks.install()
