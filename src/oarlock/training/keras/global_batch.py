"""One step of Keras's `fit` or `evaluate`, computed over the global batch that several workers share.

Keras 3 averages the workers' means as if every worker always had the same number of rows. Here each mean is
weighted by its rows, so that the weights do not depend on the number of workers. Only steps that Keras runs
change, not a custom training loop. `correction` installs everything here.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oarlock.training.keras.refusals import KerasRefusedError


class Fit(NamedTuple):
    """Arguments of `fit` that its steps need."""

    class_weight: dict[int, float] | None = None
    rows_are_even: bool = True  # whether a batch size fixed here is the same on every worker


fits: weakref.WeakKeyDictionary[Any, Fit] = weakref.WeakKeyDictionary()


class _Step(threading.local):  # a strategy runs its replicas in threads
    """The step being traced."""

    batch: Sequence[Any] = ()
    shared: bool = False  # with other workers, so a loss can sum over them
    rows: Any = None  # None if every replica has the same number of rows: then Keras is right
    share: Any = None  # rows / rows of the global batch


_step = _Step()


def around_step(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`step`, plus what the functions below need to know about it."""
    import tensorflow as tf

    training = step == model.train_step

    @functools.wraps(step)
    def on_batch(data: Any) -> Any:
        fit = fits.get(model, Fit())
        if training and fit.class_weight:
            data = _with_class_weight(data, fit.class_weight)
        try:
            _begin(data, fit)
            return step(data)
        finally:
            vars(_step).clear()

    as_written: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(on_batch)
    return as_written


def assign(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Change a variable in a step only after the step's batch has arrived.

    At the end of a dataset of unknown length, only operations that need the batch stopped, and a counter
    needs nothing: each epoch raised optimizer.iterations and the Dropout seeds by one too many (18 for 16),
    with or without a strategy.
    """
    import tensorflow as tf

    @functools.wraps(original)
    def _direct_assign(self: Any, value: Any) -> None:
        with tf.control_dependencies(_step.batch):
            original(self, value)

    return _direct_assign


def moments(original: Callable[..., Any]) -> Callable[..., Any]:
    """Keep BatchNormalization's statistics on a worker that has no rows in the last batch.

    The mean of no rows is not a number, and through the gradient it reached every worker's weights.
    """
    import tensorflow as tf

    @functools.wraps(original)
    def _moments(self: Any, inputs: Any, mask: Any) -> Any:
        mean, variance = original(self, inputs, mask)
        if _step.rows is None or self.synchronized:
            return mean, variance
        kept = [tf.cast(v, inputs.dtype) for v in (self.moving_mean, self.moving_variance)]
        return tf.where(_step.rows == 0, kept[0], mean), tf.where(_step.rows == 0, kept[1], variance)

    return _moments


def scale_loss(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Turn a mean over this worker's rows into its part of the mean over all rows.

    Keras divides by the number of workers: 257 rows in batches of 32 gave weights off by 0.026 (2 workers)
    and 0.052 (4 workers) for the last batch of one row.
    """
    import tensorflow as tf

    @functools.wraps(original)
    def scale_loss_for_distribution(value: Any) -> Any:
        if _step.share is None:
            return original(value)
        return tf.math.multiply_no_nan(value, tf.cast(_step.share, value.dtype))

    return scale_loss_for_distribution


def unscale_loss(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The inverse of `scale_loss`: Keras's loss metric needs the mean over this worker's rows."""
    import tensorflow as tf

    @functools.wraps(original)
    def unscale_loss_for_distribution(value: Any) -> Any:
        if _step.share is None:
            return original(value)
        return tf.math.divide_no_nan(value, tf.cast(_step.share, value.dtype))

    return unscale_loss_for_distribution


def reduce_values(original: Callable[..., Any], losses: Any) -> Callable[..., Any]:
    """Correct two means that Keras computes on each worker alone.

    A loss function that returns one number was not divided among the workers: gradients and loss came out
    n times too large. "mean_with_sample_weight" divided by this worker's weights: weights off by 0.01.
    """
    import tensorflow as tf

    @functools.wraps(original)
    def reduced(values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size") -> Any:
        if not _step.shared or reduction in (None, "none", "sum"):
            return original(values, sample_weight, reduction)
        if tuple(values.shape) == ():
            return losses.scale_loss_for_distribution(values)
        if reduction == "mean_with_sample_weight" and sample_weight is not None:
            total = sum_over_replicas(tf.reduce_sum(sample_weight))
            return tf.math.divide_no_nan(tf.reduce_sum(values), tf.cast(total, values.dtype))
        return original(values, sample_weight, reduction)

    return reduced


def apply_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    """Divide a masked loss by the valid entries of all workers, not of one: weights were off by 0.003 after
    20 steps."""
    import tensorflow as tf

    @functools.wraps(original)
    def masked(sample_weight: Any, mask: Any, dtype: Any, reduction: str | None) -> Any:
        weight = original(sample_weight, mask, dtype, reduction)
        if not _step.shared or mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return weight
        valid = tf.reduce_sum(tf.cast(mask, weight.dtype))
        share = 1.0 / replicas() if _step.share is None else _step.share
        return weight * tf.math.divide_no_nan(valid, sum_over_replicas(valid) * tf.cast(share, weight.dtype))

    return masked


def build_loss(original: Callable[..., None]) -> Callable[..., None]:
    """With several outputs, a worker without rows counted as a loss of 0: `a_loss` was off by 0.045."""

    @functools.wraps(original)
    def build(self: Any, y_true: Any, y_pred: Any) -> None:
        original(self, y_true, y_pred)
        for metric in self.metrics:
            metric.update_state = _by_share(metric.update_state)

    return build


def replicas() -> int:
    """The number of replicas that run this together; 1 outside `strategy.run`."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def sum_over_replicas(value: Any) -> Any:
    """The sum of `value` over all replicas, on each of them."""
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)


def _begin(data: Any, fit: Fit) -> None:
    """Note the rows of this step. Costs one all-reduce of a number, or none if all batches have one size."""
    import tensorflow as tf

    _step.batch = [part for part in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(part)]
    if replicas() == 1:
        return
    # Replicas in one process take turns at each all-reduce, and a turn in the middle of a loss mixes up what
    # Keras stores on the model: the loss is left as it is there.
    _step.shared = len(tf.distribute.get_strategy().extended.worker_devices) == 1
    first = next((leaf for leaf in tf.nest.flatten(data) if tf.is_tensor(leaf)), None)
    if first is None or first.shape.rank == 0:
        return
    if first.shape.rank is not None and first.shape[0] is not None and fit.rows_are_even:
        return
    _step.rows = tf.cast(tf.shape(first)[0], tf.float32)
    _step.share = tf.math.divide_no_nan(_step.rows, sum_over_replicas(_step.rows))


def _with_class_weight(data: Any, class_weight: dict[int, float]) -> Any:
    """`(x, y)` -> `(x, y, weight of each row's class)`, by the function Keras maps over a tf.data dataset."""
    from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

    if not isinstance(data, tuple) or len(data) != 2:
        raise KerasRefusedError("class_weight needs a dataset of (x, y) batches")
    return make_class_weight_map_fn(class_weight)(*data)


def _by_share(update_state: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update_state)
    def update(values: Any, sample_weight: Any = None) -> Any:
        return update_state(values, _step.share if sample_weight is None else sample_weight)

    return update
