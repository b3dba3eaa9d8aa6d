"""Keras 3's `model.fit`, `evaluate` and `predict` made right for several workers (keras#20585).

`install` costs no import: the corrections are made when the program imports Keras with the TensorFlow
backend. Each one is made only where the installed Keras has the fault, seen by looking at its source;
a Keras without it is left alone. tf_keras is right and never touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from oarlock.training import keras_refusals as refusals
from oarlock.training import keras_steps as steps
from oarlock.training.hooks import when_imported

_TRAINER = "keras.src.backend.tensorflow.trainer"


def install() -> None:
    """Correct Keras as soon as it is imported, or now if it is already."""
    when_imported(_TRAINER, _correct)


def _correct(trainer: ModuleType) -> None:
    for correction in (
        _symbolic_build,
        _metrics_over_workers,
        _steps,
        _shares,
        _scalar_losses,
        _clipping,
        _overflow,
        _counting,
        _methods,
    ):
        correction(trainer)


def _has(function: Any, fault: str) -> bool:
    import inspect  # not needed before there is a framework: `import oarlock` stays cheap

    return fault in inspect.getsource(function)


def _symbolic_build(trainer: Any) -> None:
    """Keras builds the model from the sum of the workers' batches: "unsupported type PerReplica"."""
    original = trainer.TensorFlowTrainer._maybe_symbolic_build
    if not _has(original, ".reduce("):
        return

    @functools.wraps(original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if iterator is None or not trainer._collective_all_reduce_multi_worker(strategy):
            return original(self, iterator=iterator, data_batch=data_batch)
        # Only the shapes are wanted, so this worker's own part of one batch will do.
        _, _, batches = next(iter(iterator))
        local = trainer.tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], next(batches)
        )
        return original(self, data_batch=local)

    trainer.TensorFlowTrainer._maybe_symbolic_build = _maybe_symbolic_build


def _metrics_over_workers(trainer: Any) -> None:
    """Keras averages a step's metrics along axis 0 of a scalar: "Invalid reduction dimension 0"."""
    original = trainer.reduce_per_replica
    if not _has(original, 'strategy.reduce("MEAN", v, axis=0)'):
        return

    @functools.wraps(original)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        operation = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if operation is None or not trainer._collective_all_reduce_multi_worker(strategy):
            return original(values, strategy, reduction)
        return trainer.tree.map_structure(lambda v: strategy.reduce(operation, v, axis=None), values)

    trainer.reduce_per_replica = reduce_per_replica


def _steps(trainer: Any) -> None:
    original = trainer.TensorFlowTrainer._make_function

    @functools.wraps(original)
    def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Any:
        return original(self, steps.around_step(self, step_function))

    trainer.TensorFlowTrainer._make_function = _make_function
    if _has(original, "one_step_on_data(iterator.get_next())"):
        variable = _variable()
        variable._direct_assign = steps.assign_after_batch(variable._direct_assign)


def _shares(trainer: Any) -> None:
    losses = trainer.loss_module
    if not _has(losses.scale_loss_for_distribution, "1.0 / num_replicas"):
        return
    losses.scale_loss_for_distribution = steps.scale_loss(losses.scale_loss_for_distribution)
    losses.unscale_loss_for_distribution = steps.unscale_loss(losses.unscale_loss_for_distribution)


def _scalar_losses(trainer: Any) -> None:
    """A loss function that returns one number is not divided among the workers: gradients n times too large."""
    losses = trainer.loss_module
    original = losses.reduce_values
    if not _has(original, "or tuple(values.shape) == ()"):
        return

    @functools.wraps(original)
    def reduce_values(values: Any, sample_weight: Any = None, reduction: str = "sum_over_batch_size") -> Any:
        if tuple(values.shape) == () and reduction not in (None, "none", "sum"):
            return losses.scale_loss_for_distribution(values)
        return original(values, sample_weight, reduction)

    losses.reduce_values = reduce_values


def _clipping(trainer: Any) -> None:
    """Keras clips each worker's part of the gradient before adding them up: it clips the sum instead."""
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    reduce, clip = TFOptimizer._all_reduce_sum_gradients, TFOptimizer._clip_gradients
    if _has(reduce, "_clip_gradients"):
        return

    @functools.wraps(clip)
    def _clip_gradients(self: Any, grads: Any) -> Any:
        return grads if steps.replicas() > 1 else clip(self, grads)

    @functools.wraps(reduce)
    def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
        reduced = reduce(self, grads_and_vars)
        if steps.replicas() == 1:
            return reduced
        return list(zip(clip(self, [grad for grad, _ in reduced]), [variable for _, variable in reduced]))

    TFOptimizer._clip_gradients = _clip_gradients
    TFOptimizer._all_reduce_sum_gradients = _all_reduce_sum_gradients


def _overflow(trainer: Any) -> None:
    """One worker's overflow in mixed_float16 made it skip a step that the others waited in."""
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    original = LossScaleOptimizer.check_finite

    @functools.wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = original(self, grads)
        if steps.replicas() == 1:
            return finite
        import tensorflow as tf

        return steps.sum_over_replicas(tf.cast(tf.logical_not(finite), tf.float32)) == 0

    LossScaleOptimizer.check_finite = check_finite


def _counting(trainer: Any) -> None:
    """`optimizer.iterations` lost counts when workers shared a parameter server: 285 of 400."""
    variable = _variable()
    for name, fault in (("assign_add", "self.assign(self + value)"), ("assign_sub", "self.assign(self - value)")):
        original = getattr(variable, name)
        if _has(original, fault):
            setattr(variable, name, _in_place(original))


def _variable() -> Any:
    from keras.src.backend.tensorflow.core import Variable

    return Variable


def _in_place(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Add on the server that holds the variable, instead of reading it, adding here and writing it back."""
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        variable = self._value
        if in_stateless_scope() or "/job:ps/" not in (getattr(variable, "device", None) or ""):
            return original(self, value)
        import tensorflow as tf

        delta = self._convert_to_tensor(value, dtype=self._dtype)
        return tf.convert_to_tensor(getattr(variable, original.__name__)(delta))

    return change


def _methods(trainer: Any) -> None:
    cls = trainer.TensorFlowTrainer
    for name in ("fit", "evaluate", "predict"):
        setattr(cls, name, _prepared(trainer, getattr(cls, name)))


def _prepared(trainer: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    signature = inspect.signature(method)

    @functools.wraps(method)
    def prepared(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self._distribute_strategy
        refusals.refuse_parameter_servers(strategy)
        if not trainer._collective_all_reduce_multi_worker(strategy):
            return method(self, *args, **kwargs)
        call = signature.bind(self, *args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        for dataset in (given["x"], given.get("validation_data")):
            refusals.refuse_unsharded(dataset)
        refusals.one_step_per_execution(self)
        refusals.no_xla_on_cpu(self, strategy)
        if method.__name__ == "fit":
            _prepare_fit(self, strategy, given)
        return method(*call.args, **call.kwargs)

    return prepared


def _prepare_fit(model: Any, strategy: Any, given: dict[str, Any]) -> None:
    import tensorflow as tf

    refusals.unseeded_shuffle(given["x"], given["shuffle"])
    batch_norm = refusals.unsynchronized_batch_norm(model)
    fit = steps.Fit(batch_norm=batch_norm)
    if isinstance(given["x"], tf.distribute.DistributedDataset):
        # Keras would map the dataset, which a distributed one cannot: "no attribute 'map'".
        fit = steps.Fit(given["class_weight"], _rows_are_even(strategy, given["x"]), batch_norm)
        given["class_weight"] = None
    if steps.fits.get(model) != fit:
        steps.fits[model] = fit
        model.train_function = None


def _rows_are_even(strategy: Any, dataset: Any) -> bool:
    """Whether every worker's batches have the same fixed size: asked once, so that no step has to."""
    import tensorflow as tf

    first = tf.nest.flatten(dataset.element_spec, expand_composites=True)[0].shape
    mine = tf.constant([first[0] or -1 if first.rank else -1])
    everybody = strategy.gather(mine, axis=0)
    return bool(tf.reduce_all(everybody == mine) and mine[0] > 0)
