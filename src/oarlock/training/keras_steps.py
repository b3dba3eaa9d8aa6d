"""What happens inside one Keras training step when several workers share it.

Keras 3 averages the workers' losses as if every worker always held the same number of rows, and
clips, checks and counts on each worker alone. Here each of these is done over the global batch, so that
the weights do not depend on how many workers there are. Called only from `keras_correction`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oarlock.training.keras_refusals import Refused


class Fit(NamedTuple):
    """What `fit` was given that its steps have to know."""

    class_weight: dict[int, float] | None = None
    rows_are_even: bool = True
    batch_norm: str | None = None  # the name of a layer that cannot live with an empty batch


fits: weakref.WeakKeyDictionary[Any, Fit] = weakref.WeakKeyDictionary()


class _Step(threading.local):  # a strategy runs its replicas in threads
    """The step being traced."""

    batch: Sequence[Any] = ()
    share: Any = None


_step = _Step()


def around_step(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`step`, during which everybody can ask for its batch and for the batch's share of the global one."""
    import tensorflow as tf

    training = step == model.train_step

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(step)
    def on_batch(data: Any) -> Any:
        fit = fits.get(model, Fit())
        if training and fit.class_weight:
            data = _with_class_weight(data, fit.class_weight)
        try:
            _step.batch = [part for part in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(part)]
            _step.share = _share_of_global_batch(data, fit)
            return step(data)
        finally:
            _step.batch, _step.share = (), None

    return on_batch


def assign_after_batch(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """A variable changes in a step only once the step's batch is there.

    At the end of a dataset of unknown length only what needs the batch stopped, and a counter needs
    nothing: each epoch raised optimizer.iterations and the Dropout seeds by one (18 for 16), with or
    without a strategy.
    """
    import tensorflow as tf

    @functools.wraps(original)
    def _direct_assign(self: Any, value: Any) -> None:
        with tf.control_dependencies(_step.batch):
            original(self, value)

    return _direct_assign


def scale_loss(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A mean over this worker's rows -> its part of the mean over everybody's.

    Keras divides by the number of workers: 257 rows in batches of 32 gave weights off by 0.026 (2 workers)
    and 0.052 (4 workers) after the last batch of one row.
    """

    @functools.wraps(original)
    def scale_loss_for_distribution(value: Any) -> Any:
        if _step.share is None:
            return original(value)
        import tensorflow as tf

        return tf.math.multiply_no_nan(value, tf.cast(_step.share, value.dtype))

    return scale_loss_for_distribution


def unscale_loss(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The inverse of `scale_loss`: Keras' loss metric wants the mean over this worker's rows back."""

    @functools.wraps(original)
    def unscale_loss_for_distribution(value: Any) -> Any:
        if _step.share is None:
            return original(value)
        import tensorflow as tf

        return tf.math.divide_no_nan(value, tf.cast(_step.share, value.dtype))

    return unscale_loss_for_distribution


def replicas() -> int:
    """How many replicas run this step together; 1 outside a step."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def sum_over_replicas(values: Any) -> Any:
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)


def _share_of_global_batch(data: Any, fit: Fit) -> Any:
    """This worker's rows over all rows, or None where all have the same number and Keras is right.

    Costs one all-reduce of two numbers, and none where the batch size is fixed and the same everywhere.
    """
    import tensorflow as tf

    if replicas() == 1:
        return None
    first = next((leaf for leaf in tf.nest.flatten(data) if tf.is_tensor(leaf)), None)
    if first is None or first.shape.rank == 0:
        return None
    if first.shape.rank is not None and first.shape[0] is not None and fit.rows_are_even:
        return None
    rows = tf.cast(tf.shape(first)[0], tf.float32)
    total, empty = tf.unstack(sum_over_replicas(tf.stack([rows, tf.cast(rows == 0, tf.float32)])))
    if fit.batch_norm is None:
        return tf.math.divide_no_nan(rows, total)
    refusal = (
        f"the last batch is too small to give every worker a row, and the mean of no rows would make"
        f" the moving statistics of {fit.batch_norm} NaN: write BatchNormalization(synchronized=True)"
        f" or batch(..., drop_remainder=True)"
    )
    with tf.control_dependencies([tf.debugging.Assert(empty == 0, [refusal])]):
        return tf.math.divide_no_nan(rows, total)


def _with_class_weight(data: Any, class_weight: dict[int, float]) -> Any:
    """`(x, y)` -> `(x, y, weight of each row's class)`, by the function Keras uses on a tf.data dataset."""
    from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

    if not isinstance(data, tuple) or len(data) != 2:
        raise Refused("class_weight needs batches of (x, y)")
    return make_class_weight_map_fn(class_weight)(*data)
