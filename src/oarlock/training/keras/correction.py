"""Correct Keras 3's `model.fit`, `evaluate` and `predict` for several workers (keras#20585).

`install` imports nothing: the corrections are applied when the program imports Keras with the TensorFlow
backend. Each is applied only if the source of the installed Keras has the fault; a Keras without it is
left alone. tf_keras has none of them and is never touched.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from oarlock.training.frameworks import coordinators
from oarlock.training.frameworks.import_hooks import when_imported
from oarlock.training.keras import (
    fit_methods,
    global_batch,
    keras_files,
    optimizer_corrections,
    refusals,
    served_fit,
)
from oarlock.training.keras.keras_source import Change, has_in_source

_corrected = False


def install() -> None:
    """Correct Keras as soon as it is imported, or now if it already is."""
    coordinators.install()
    when_imported("keras.src.backend.tensorflow.trainer", _correct)
    when_imported("keras", _warn_if_unknown)


def _correct(trainer: ModuleType) -> None:
    global _corrected
    corrections = (
        _build,
        _reduce,
        _steps,
        _losses,
        _compiling,
        optimizer_corrections.clipping,
        optimizer_corrections.overflow,
        optimizer_corrections.counting,
        keras_files.writing,
        fit_methods.ending,
        fit_methods.methods,
    )
    try:
        _apply("corrected_by_oarlock", [change for correct in corrections for change in correct(trainer)])
        _apply("serves_by_oarlock", list(served_fit.changes(trainer)))  # on top of the corrections
    except (AttributeError, ImportError, OSError):
        return  # a Keras with other internals; see `_warn_if_unknown`
    _corrected = True


def _apply(mark: str, changes: Iterable[Change]) -> None:
    for owner, name, function in changes:
        if not hasattr(getattr(owner, name), mark):
            setattr(function, mark, True)
            setattr(owner, name, function)


def _warn_if_unknown(keras: Any) -> None:
    """Warn about a Keras with unknown internals, but only when several workers train."""
    if _corrected or int(keras.__version__.split(".")[0]) < 3 or keras.backend.backend() != "tensorflow":
        return
    original = keras.Model.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = getattr(self, "distribute_strategy", None)
        replicas = getattr(strategy, "num_replicas_in_sync", 1)
        if strategy is not None and replicas > 1 and replicas > len(strategy.extended.worker_devices):
            refusals.say_once(
                f"fit of Keras {keras.__version__} is not known to be correct with several workers:"
                " install keras>=3.14,<3.16, or compare the weights with those of one worker",
                stacklevel=3,
            )
        return original(self, *args, **kwargs)

    keras.Model.fit = fit


def _build(trainer: Any) -> Iterator[Change]:
    """Keras builds the model from the mean of the workers' batches: "unsupported type PerReplica"."""
    original = trainer.TensorFlowTrainer._maybe_symbolic_build
    several_workers = trainer._collective_all_reduce_multi_worker

    @functools.wraps(original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if iterator is not None and several_workers(strategy):
            # Only the shapes matter, so this worker's own part of one batch is enough.
            *_, batches = next(iter(iterator))
            data_batch = trainer.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            iterator = None
        original(self, iterator=iterator, data_batch=data_batch)
        if several_workers(strategy):
            refusals.refuse_metrics_from_elsewhere(self, strategy)

    if has_in_source(original, ".reduce("):
        yield trainer.TensorFlowTrainer, "_maybe_symbolic_build", _maybe_symbolic_build


def _reduce(trainer: Any) -> Iterator[Change]:
    """Keras averages a step's metrics along axis 0 of a scalar: "Invalid reduction dimension 0"."""
    if not has_in_source(trainer.metrics_module.Metric.add_variable, "on_read"):
        raise AttributeError("before 3.10 each worker keeps its metrics for itself")
    original = trainer.reduce_per_replica
    several_workers = trainer._collective_all_reduce_multi_worker

    @functools.wraps(original)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        operation = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if operation is None or not several_workers(strategy):
            return original(values, strategy, reduction)
        return trainer.tree.map_structure(lambda v: strategy.reduce(operation, v, axis=None), values)

    if has_in_source(original, 'strategy.reduce("MEAN", v, axis=0)'):
        yield trainer, "reduce_per_replica", reduce_per_replica


def _steps(trainer: Any) -> Iterator[Change]:
    from keras.src.backend.tensorflow.core import Variable
    from keras.src.layers import BatchNormalization

    original = trainer.TensorFlowTrainer._make_function

    @functools.wraps(original)
    def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Any:
        return original(self, global_batch.around_step(self, step_function))

    yield trainer.TensorFlowTrainer, "_make_function", _make_function
    yield BatchNormalization, "_moments", global_batch.moments(BatchNormalization._moments)
    if has_in_source(original, "one_step_on_data(iterator.get_next())"):
        yield Variable, "_direct_assign", global_batch.assign(Variable._direct_assign)


def _losses(trainer: Any) -> Iterator[Change]:
    from keras.src.trainers.compile_utils import CompileLoss

    losses = trainer.loss_module
    if not has_in_source(losses.scale_loss_for_distribution, "1.0 / num_replicas"):
        return
    yield losses, "scale_loss_for_distribution", global_batch.scale_loss(losses.scale_loss_for_distribution)
    yield (
        losses,
        "unscale_loss_for_distribution",
        global_batch.unscale_loss(losses.unscale_loss_for_distribution),
    )
    yield losses, "reduce_values", global_batch.reduce_values(losses.reduce_values, losses)
    yield losses, "apply_mask", global_batch.apply_mask(losses.apply_mask)
    yield CompileLoss, "build", global_batch.build_loss(CompileLoss.build)


def _compiling(trainer: Any) -> Iterator[Change]:
    """`compile` outside the strategy's scope failed in `fit` with "Mixing different Strategy objects"."""
    original = trainer.TensorFlowTrainer.compile

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy = self._distribute_strategy
        several = trainer._collective_all_reduce_multi_worker(strategy)
        with strategy.scope() if several else contextlib.nullcontext():
            original(self, *args, **kwargs)

    yield trainer.TensorFlowTrainer, "compile", compile
