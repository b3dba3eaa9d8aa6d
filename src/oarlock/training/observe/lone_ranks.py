"""Notices ranks that train alone: a torch program with several workers that never forms a process group.

Nothing fails in that case: each worker trains its own model, and all but one are thrown away. Only a step
of a torch optimizer counts as training, so programs of other frameworks are not affected.
"""

from __future__ import annotations

import os
import sys
import time
from types import ModuleType
from typing import Any

from oarlock.training.frameworks.import_hooks import when_imported
from oarlock.training.task import channel

_STEPS = 10
_SECONDS = 60.0
_ADVICE = {  # by the first of these that the program has imported
    "lightning": 'pass strategy="ddp", devices and num_nodes to Trainer ({across})',
    "pytorch_lightning": 'pass strategy="ddp", devices and num_nodes to Trainer ({across})',
    "accelerate": "create an Accelerator before anything else; on CPUs set ACCELERATE_USE_CPU=true in env",
    "transformers": "create TrainingArguments first; on CPUs set use_cpu=True there",
}
_OTHER = "call torch.distributed.init_process_group() and wrap the model in DistributedDataParallel"


def install() -> None:
    """Watch the leading rank of a gang of several."""
    if os.environ.get("OARLOCK_RANK") == "0" and int(os.environ.get("OARLOCK_WORLD", "1")) > 1:
        when_imported("torch.optim.optimizer", _watch)


def _watch(module: ModuleType) -> None:
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:  # torch 2.0 and later
        _Watch(register)


class _Watch:
    """Counts optimizer steps until there is a process group or the warning is out, then removes itself."""

    def __init__(self, register: Any) -> None:
        self._steps = 0
        self._first: float | None = None
        self._handle = register(self._on_step)

    def _on_step(self, *_: Any) -> None:
        now = time.monotonic()
        self._steps += 1
        self._first = now if self._first is None else self._first
        try:
            is_connected = _is_connected()
        except Exception:  # a library with other internals: then nothing is known
            is_connected = True
        if is_connected:
            self._handle.remove()
        elif self._steps >= _STEPS or now - self._first >= _SECONDS:
            self._handle.remove()
            channel.send({"kind": "warning", "text": _warning(), "fix": advice()})


def _is_connected() -> bool:
    """Whether this process has joined others, by any means."""
    if _accelerates_alone():
        return False
    if any(name in sys.modules for name in ("horovod", "mpi4py", "byteps", "ray")):
        return True
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    agent = getattr(sys.modules.get("torch.distributed.rpc.api"), "_is_current_rpc_agent_set", None)
    return distributed.is_initialized() or bool(agent is not None and agent())


def _accelerates_alone() -> bool:
    """Whether an Accelerator counts one process: on CPUs it forms a group and does not use it."""
    state: Any = sys.modules.get("accelerate.state")
    if state is None or not state.AcceleratorState._shared_state:
        return False
    return bool(state.PartialState._shared_state.get("num_processes") == 1)


def _warning() -> str:
    world = os.environ.get("OARLOCK_WORLD")
    group = "the program has formed no process group (torch.distributed)"
    missing = "Accelerate uses one process" if _accelerates_alone() else group
    return f"{world} workers, but {missing}: each trains alone, on its own model"


def advice() -> str:
    """What to do about it, for the library that the program trains with."""
    world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    across = f"devices={local}, num_nodes={max(1, world // max(1, local))} here"
    for library, text in _ADVICE.items():
        if library in sys.modules and (library != "accelerate" or "transformers.trainer" not in sys.modules):
            return text.format(across=across)
    return _OTHER
