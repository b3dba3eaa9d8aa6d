"""`fit`, `evaluate` and `predict` as programs call them: refused if they cannot be right, else prepared."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from oarlock.training.keras import global_batch, keras_files, refusals, served_fit
from oarlock.training.keras.keras_source import Change

_iterators: list[Any] = []  # of the latest fit, evaluate or predict with several workers
_depth = 0  # fit calls evaluate


def methods(trainer: Any) -> Iterator[Change]:
    """Check and prepare every call of `fit`, `evaluate` and `predict`."""
    for name in ("fit", "evaluate", "predict"):
        yield trainer.TensorFlowTrainer, name, _prepared(trainer, getattr(trainer.TensorFlowTrainer, name))


def _prepared(trainer: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, but raising if it cannot be right, and changing settings that have a right alternative."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def prepared(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self._distribute_strategy
        if served_fit.is_served(strategy):
            refusals.refuse_several_replicas(strategy)
            with served_fit.serving(self):
                return method(self, *args, **kwargs)
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
            _pass_to_steps(self, strategy, given)
            keras_files.restore(self, strategy, given["callbacks"])
        with _keeping_iterators():
            return method(*call.args, **call.kwargs)

    return prepared


def ending(trainer: Any) -> Iterator[Change]:
    """Destroying a distributed iterator after the last fit takes a worker up to 20 s. Meanwhile others exit,
    and it reports "The tasks have crashed". A worker that keeps the iterator exits at once."""
    original = trainer.TFEpochIterator.__init__

    @functools.wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _depth:
            _iterators.append(self)

    yield trainer.TFEpochIterator, "__init__", begin


@contextlib.contextmanager
def _keeping_iterators() -> Iterator[None]:
    """Keep them until the next call, which all workers take part in: only those of one call use memory."""
    global _depth
    if not _depth:
        _iterators.clear()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def _pass_to_steps(model: Any, strategy: Any, given: dict[str, Any]) -> None:
    import tensorflow as tf

    fit = global_batch.Fit()
    if isinstance(given["x"], tf.distribute.DistributedDataset):
        # Keras would map a function over the dataset; a distributed one cannot do that: "no attribute 'map'".
        fit = global_batch.Fit(given["class_weight"], _rows_are_even(strategy, given["x"]))
        given["class_weight"] = None
    if global_batch.fits.get(model) != fit:
        global_batch.fits[model] = fit
        model.train_function = None


def _rows_are_even(strategy: Any, dataset: Any) -> bool:
    """Whether every worker's batches have the same fixed size: checked once, so that no step has to."""
    import tensorflow as tf

    first = tf.nest.flatten(dataset.element_spec, expand_composites=True)[0].shape
    rows = (first[0] or -1) if first.rank else -1
    total, squares = strategy.reduce("SUM", tf.constant([rows, rows * rows], tf.int64), axis=None)
    return rows > 0 and bool(strategy.num_replicas_in_sync * squares == total * total)
