"""Keras 3's `model.fit`, `evaluate` and `predict` made right for several workers (keras#20585).

`install` costs no import: the corrections are made when the program imports Keras with the TensorFlow
backend. Each is made only where the installed Keras has the fault, seen by looking at its source, and
a Keras without it is left alone. tf_keras is right and never touched.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from oarlock.training.frameworks.import_hooks import when_imported
from oarlock.training.keras import global_batch as steps
from oarlock.training.keras import refusals

Change = tuple[Any, str, Callable[..., Any]]  # whose attribute, which, and what it becomes

_corrected = False
_iterators: list[Any] = []  # of the newest fit, evaluate or predict with several workers
_depth = 0  # fit calls evaluate


def install() -> None:
    """Correct Keras as soon as it is imported, or now if it is already."""
    when_imported("keras.src.backend.tensorflow.trainer", _correct)
    when_imported("keras", _speak_up_if_unknown)


def _correct(trainer: ModuleType) -> None:
    global _corrected
    corrections = (
        _build,
        _reduce,
        _steps,
        _losses,
        _clipping,
        _overflow,
        _counting,
        _compiling,
        _ending,
        _methods,
    )
    try:
        changes = [change for correction in corrections for change in correction(trainer)]
    except (AttributeError, ImportError, OSError):
        return  # a Keras that looks different inside; see `_speak_up_if_unknown`
    for owner, name, function in changes:
        if not hasattr(getattr(owner, name), "corrected_by_oarlock"):
            function.corrected_by_oarlock = True  # type: ignore[attr-defined]
            setattr(owner, name, function)
    _corrected = True


def _speak_up_if_unknown(keras: Any) -> None:
    """Where the inside of Keras is not what we know, say so, but only when several workers train."""
    if _corrected or int(keras.__version__.split(".")[0]) < 3 or keras.backend.backend() != "tensorflow":
        return
    original = keras.Model.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = getattr(self, "distribute_strategy", None)
        replicas = getattr(strategy, "num_replicas_in_sync", 1)
        if strategy is not None and replicas > 1 and replicas > len(strategy.extended.worker_devices):
            refusals.say_once(
                f"Keras {keras.__version__} is not one whose fit is known to be right with several workers:"
                " install keras>=3.14,<3.16, or compare its weights with those of one worker",
                stacklevel=3,
            )
        return original(self, *args, **kwargs)

    keras.Model.fit = fit


def _has(function: Any, fault: str) -> bool:
    import inspect  # not needed before there is a framework: `import oarlock` stays cheap

    return fault in inspect.getsource(function)


def _build(trainer: Any) -> Iterator[Change]:
    """Keras builds the model from the mean of the workers' batches: "unsupported type PerReplica"."""
    original = trainer.TensorFlowTrainer._maybe_symbolic_build
    several_workers = trainer._collective_all_reduce_multi_worker

    @functools.wraps(original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if iterator is not None and several_workers(strategy):
            # Only the shapes are wanted, so this worker's own part of one batch will do.
            *_, batches = next(iter(iterator))
            data_batch = trainer.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            iterator = None
        original(self, iterator=iterator, data_batch=data_batch)
        if several_workers(strategy):
            refusals.refuse_metrics_from_elsewhere(self, strategy)

    if _has(original, ".reduce("):
        yield trainer.TensorFlowTrainer, "_maybe_symbolic_build", _maybe_symbolic_build


def _reduce(trainer: Any) -> Iterator[Change]:
    """Keras averages a step's metrics along axis 0 of a scalar: "Invalid reduction dimension 0"."""
    if not _has(trainer.metrics_module.Metric.add_variable, "on_read"):
        raise AttributeError("before 3.10 each worker keeps its metrics for itself")
    original = trainer.reduce_per_replica
    several_workers = trainer._collective_all_reduce_multi_worker

    @functools.wraps(original)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        operation = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if operation is None or not several_workers(strategy):
            return original(values, strategy, reduction)
        return trainer.tree.map_structure(lambda v: strategy.reduce(operation, v, axis=None), values)

    if _has(original, 'strategy.reduce("MEAN", v, axis=0)'):
        yield trainer, "reduce_per_replica", reduce_per_replica


def _steps(trainer: Any) -> Iterator[Change]:
    from keras.src.backend.tensorflow.core import Variable
    from keras.src.layers import BatchNormalization

    original = trainer.TensorFlowTrainer._make_function

    @functools.wraps(original)
    def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Any:
        return original(self, steps.around_step(self, step_function))

    yield trainer.TensorFlowTrainer, "_make_function", _make_function
    yield BatchNormalization, "_moments", steps.moments(BatchNormalization._moments)
    if _has(original, "one_step_on_data(iterator.get_next())"):
        yield Variable, "_direct_assign", steps.assign(Variable._direct_assign)


def _losses(trainer: Any) -> Iterator[Change]:
    from keras.src.trainers.compile_utils import CompileLoss

    losses = trainer.loss_module
    if not _has(losses.scale_loss_for_distribution, "1.0 / num_replicas"):
        return
    yield losses, "scale_loss_for_distribution", steps.scale_loss(losses.scale_loss_for_distribution)
    yield losses, "unscale_loss_for_distribution", steps.unscale_loss(losses.unscale_loss_for_distribution)
    yield losses, "reduce_values", steps.reduce_values(losses.reduce_values, losses)
    yield losses, "apply_mask", steps.apply_mask(losses.apply_mask)
    yield CompileLoss, "build", steps.build_loss(CompileLoss.build)


def _clipping(trainer: Any) -> Iterator[Change]:
    """Keras clips each worker's part of the gradient and then adds the parts up: clip their sum.

    `fit` gave weights off by 0.016 to 0.075 after about 20 steps. The optimizer is what changes, so this
    holds for a loop of the program's own too.
    """
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    reduce, clip = TFOptimizer._all_reduce_sum_gradients, TFOptimizer._clip_gradients

    @functools.wraps(clip)
    def _clip_gradients(self: Any, grads: Any) -> Any:
        return grads if steps.replicas() > 1 else clip(self, grads)

    @functools.wraps(reduce)
    def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
        reduced = reduce(self, grads_and_vars)
        if steps.replicas() == 1:
            return reduced
        return list(zip(clip(self, [grad for grad, _ in reduced]), [variable for _, variable in reduced]))

    if not _has(reduce, "_clip_gradients"):
        yield TFOptimizer, "_clip_gradients", _clip_gradients
        yield TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients


def _overflow(trainer: Any) -> Iterator[Change]:
    """A worker whose float16 gradients overflowed left out a step that the others waited in."""
    import tensorflow as tf
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    original = LossScaleOptimizer.check_finite

    @functools.wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = original(self, grads)
        if steps.replicas() == 1:
            return finite
        return steps.sum_over_replicas(tf.cast(tf.logical_not(finite), tf.float32)) == 0

    if not _has(original, "all_reduce"):
        yield LossScaleOptimizer, "check_finite", check_finite


def _counting(trainer: Any) -> Iterator[Change]:
    """`optimizer.iterations` lost counts when workers shared a parameter server: 285 of 400."""
    from keras.src.backend.tensorflow.core import Variable

    for name, fault in (
        ("assign_add", "self.assign(self + value)"),
        ("assign_sub", "self.assign(self - value)"),
    ):
        if _has(getattr(Variable, name), fault):
            yield Variable, name, _in_place(getattr(Variable, name))


def _in_place(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Change the variable on the server that holds it, instead of reading, adding and writing back."""
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        variable = self._value
        if in_stateless_scope() or "/job:ps/" not in (getattr(variable, "device", None) or ""):
            return original(self, value)
        delta = self._convert_to_tensor(value, dtype=self._dtype)
        return tf.convert_to_tensor(getattr(variable, original.__name__)(delta))

    return change


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


def _methods(trainer: Any) -> Iterator[Change]:
    for name in ("fit", "evaluate", "predict"):
        yield trainer.TensorFlowTrainer, name, _prepared(trainer, getattr(trainer.TensorFlowTrainer, name))


def _prepared(trainer: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, refused where it cannot be right and set to what can."""
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
        refusals.refuse_unsharded(given["x"], given.get("validation_data"))
        refusals.refuse_optimizer_from_elsewhere(self, strategy)
        refusals.one_step_per_execution(self)
        refusals.no_xla_on_cpu(self, strategy)
        if method.__name__ == "fit":
            refusals.refuse_gradient_accumulation(self)
            refusals.unseeded_shuffle(given["x"], given["shuffle"])
            refusals.unsynchronized_batch_norm(self)
            _tell_steps(self, strategy, given)
        with _keeping_iterators():
            return method(*call.args, **call.kwargs)

    return prepared


def _ending(trainer: Any) -> Iterator[Change]:
    """After its last fit a worker destroys a distributed iterator, which takes up to 20 s; others leave
    meanwhile, and it complains: "The tasks have crashed". One that keeps the iterator ends at once."""
    original = trainer.TFEpochIterator.__init__

    @functools.wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _depth:
            _iterators.append(self)

    yield trainer.TFEpochIterator, "__init__", begin


@contextlib.contextmanager
def _keeping_iterators() -> Iterator[None]:
    """Until the next call, when everybody is there: memory holds those of one call, as ever."""
    global _depth
    if not _depth:
        _iterators.clear()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def _tell_steps(model: Any, strategy: Any, given: dict[str, Any]) -> None:
    import tensorflow as tf

    fit = steps.Fit()
    if isinstance(given["x"], tf.distribute.DistributedDataset):
        # Keras would map a function over the dataset, which a distributed one cannot: "no attribute 'map'".
        fit = steps.Fit(given["class_weight"], _rows_are_even(strategy, given["x"]))
        given["class_weight"] = None
    if steps.fits.get(model) != fit:
        steps.fits[model] = fit
        model.train_function = None


def _rows_are_even(strategy: Any, dataset: Any) -> bool:
    """Whether every worker's batches have the same fixed size: asked once, so that no step has to."""
    import tensorflow as tf

    first = tf.nest.flatten(dataset.element_spec, expand_composites=True)[0].shape
    rows = (first[0] or -1) if first.rank else -1
    total, squares = strategy.reduce("SUM", tf.constant([rows, rows * rows], tf.int64), axis=None)
    return rows > 0 and bool(strategy.num_replicas_in_sync * squares == total * total)
