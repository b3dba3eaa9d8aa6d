"""Hooks that only count what this process has done: optimizer steps under accelerate, and tqdm's bars."""

from __future__ import annotations

import functools
import re
import threading
import weakref
from types import ModuleType
from typing import Any

from oarlock.training.observe import observer

_LOSS = re.compile(r"(?:^|, )loss=([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)(?:,|$)", re.IGNORECASE)
_BYTES = ("B", "iB")  # the unit of a download's bar


class _Steps:
    """The optimizer steps of a program with accelerate; with several optimizers, those of the busiest."""

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._loss: dict[str, Any] = {}

    def on_backward(self, loss: Any) -> None:
        self._loss = {"loss": loss.detach()} if getattr(loss, "shape", None) == () else {}

    def on_step(self, optimizer: Any) -> None:
        if not optimizer.gradient_state.sync_gradients or optimizer.step_was_skipped:
            return
        count = self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if count >= max(self._counts.values()):
            observer.tell("accelerate", count, **self._loss)


_steps = _Steps()


def accelerator(module: ModuleType) -> None:
    """`accelerate.accelerator`."""
    original = module.Accelerator.backward
    see = observer.careful("accelerate", _steps.on_backward)

    @functools.wraps(original)
    def backward(self: Any, loss: Any, **kwargs: Any) -> Any:
        see(loss)
        return original(self, loss, **kwargs)

    module.Accelerator.backward = backward


def accelerated_optimizer(module: ModuleType) -> None:
    """`accelerate.optimizer`."""
    original = module.AcceleratedOptimizer.step
    see = observer.careful("accelerate", _steps.on_step)

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        see(self)
        return result

    module.AcceleratedOptimizer.step = step


def tqdm(module: ModuleType) -> None:
    """`tqdm.std`: a bar is drawn at most ten times a second, no matter how often it advances."""
    bar = module.tqdm
    refresh, close = bar.refresh, bar.close
    see = observer.careful("tqdm", _see_bar)

    @functools.wraps(refresh)
    def seen_refresh(self: Any, *args: Any, **kwargs: Any) -> Any:
        see(self)
        return refresh(self, *args, **kwargs)

    @functools.wraps(close)
    def seen_close(self: Any) -> Any:
        see(self, is_last=True)
        return close(self)

    bar.refresh, bar.close = seen_refresh, seen_close


def _see_bar(bar: Any, is_last: bool = False) -> None:
    """Only the outermost bar of the main thread, and no bar of a download."""
    if getattr(bar, "disable", True) or bar.pos or bar.unit in _BYTES or not bar.n:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    loss = _LOSS.search(bar.postfix) if isinstance(getattr(bar, "postfix", None), str) else None
    metrics = {} if loss is None else {"loss": float(loss.group(1))}
    observer.tell("tqdm", bar.n, total=bar.total, **metrics)
    if is_last:
        observer.finish("tqdm")
