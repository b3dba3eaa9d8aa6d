"""Training loops that know their step: `fit` of Keras and Lightning, `train` of transformers' Trainer.

Each hook wraps the one function of the library that calls all of its callbacks. So no callback of ours
appears among the program's own, is pickled with them or changes what they see.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from oarlock.training.keras import Progress
from oarlock.training.observe import observer


def keras(module: ModuleType) -> None:
    """Keras or tf_keras `fit`. This one needs a callback: they have no such function."""
    original = module.Model.fit
    signature = inspect.signature(original)
    tell = observer.careful("keras", functools.partial(observer.tell, "keras"))
    add, finish = observer.careful("keras", _add), observer.careful("keras", observer.finish)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = None
        try:
            call = signature.bind(self, *args, **kwargs)
        except TypeError:
            return original(self, *args, **kwargs)  # which raises the right error
        observer.claim("keras")
        add(call.arguments, Progress(report=tell))
        try:
            return original(*call.args, **call.kwargs)
        finally:
            finish("keras")

    module.Model.fit = fit


def _add(given: dict[str, Any], callback: Any) -> None:
    callbacks: Any = given.get("callbacks")
    if hasattr(callbacks, "append") and not isinstance(callbacks, list):
        callbacks.append(callback)  # a CallbackList that the program made
    elif isinstance(callbacks, (list, tuple)):
        given["callbacks"] = [*callbacks, callback]
    else:
        given["callbacks"] = [callback] if callbacks is None else [callbacks, callback]


def lightning(call: ModuleType) -> None:
    """`lightning.pytorch.trainer.call`, or the same module of pytorch_lightning."""
    original = call._call_callback_hooks
    see = observer.careful("lightning", _see_lightning)

    @functools.wraps(original)
    def _call_callback_hooks(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        if hook_name in _LIGHTNING:
            see(trainer, hook_name, args)
        return original(trainer, hook_name, *args, **kwargs)

    call._call_callback_hooks = _call_callback_hooks  # type: ignore[attr-defined]


_LIGHTNING = frozenset(
    {"on_train_start", "on_train_batch_end", "on_validation_batch_end", "on_train_end", "on_exception"}
)


def _see_lightning(trainer: Any, hook_name: str, args: tuple[Any, ...]) -> None:
    if hook_name == "on_train_start":
        observer.claim("lightning")
    elif hook_name == "on_train_batch_end":
        outputs = args[0]
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        metrics = {"loss": loss} if _is_number(loss) else {}
        epoch = trainer.current_epoch + 1
        total = _lightning_total(trainer)
        observer.tell("lightning", trainer.global_step, total=total, epoch=epoch, **metrics)
    elif hook_name == "on_validation_batch_end":
        observer.alive("lightning")
    else:
        observer.finish("lightning")


def _lightning_total(trainer: Any) -> int | None:
    """Avoids Lightning's own estimate, which would set up data loaders."""
    totals = [trainer.max_steps] if trainer.max_steps is not None and trainer.max_steps > 0 else []
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is not None and epochs > 0 and math.isfinite(batches):
        totals.append(math.ceil(batches / trainer.accumulate_grad_batches) * epochs)
    return min(totals, default=None)


def transformers_events(callbacks: ModuleType) -> None:
    """`transformers.trainer_callback`."""
    original = callbacks.CallbackHandler.call_event
    see = observer.careful("transformers", _Transformers().see)

    @functools.wraps(original)
    def call_event(self: Any, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        see(event, state, kwargs)
        return original(self, event, args, state, control, **kwargs)

    callbacks.CallbackHandler.call_event = call_event


class _Transformers:
    def __init__(self) -> None:
        self._loss: dict[str, Any] = {}  # as logged: read from the device only when the Trainer reads it

    def see(self, event: str, state: Any, kwargs: Mapping[str, Any]) -> None:
        if event == "on_train_begin":
            self._loss = {}
            observer.claim("transformers")
        elif event == "on_log":
            logs = kwargs.get("logs") or {}
            self._loss = {"loss": logs["loss"]} if "loss" in logs else self._loss
            observer.alive("transformers")
        elif event == "on_step_end":
            epoch = {} if state.epoch is None else {"epoch": math.ceil(state.epoch)}
            total = state.max_steps if state.max_steps and state.max_steps > 0 else None
            observer.tell("transformers", state.global_step, total=total, **epoch, **self._loss)
        elif event in ("on_substep_end", "on_prediction_step", "on_save", "on_evaluate"):
            observer.alive("transformers")


def transformers_train(module: ModuleType) -> None:
    """`transformers.trainer`: when an exception ends `train`, there is no event."""
    original = module.Trainer.train
    finish = observer.careful("transformers", observer.finish)

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            finish("transformers")

    module.Trainer.train = train


def _is_number(value: Any) -> bool:
    """A number or a tensor of one, judged by shape: it is not read."""
    return isinstance(value, (int, float)) or getattr(value, "shape", None) == ()
