"""Faults of Keras 3's optimizers with several workers: clipping, overflow, and counting steps.

The change is in the optimizer, so it applies to custom training loops as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from oarlock.training.keras import global_batch
from oarlock.training.keras.keras_source import Change, has_in_source


def clipping(trainer: Any) -> Iterator[Change]:
    """Clip the sum of the gradients: Keras clips each worker's part and then adds the parts up.

    `fit` gave weights off by 0.016 to 0.075 after about 20 steps.
    """
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    reduce, clip = TFOptimizer._all_reduce_sum_gradients, TFOptimizer._clip_gradients

    @functools.wraps(clip)
    def _clip_gradients(self: Any, grads: Any) -> Any:
        return grads if global_batch.replicas() > 1 else clip(self, grads)

    @functools.wraps(reduce)
    def _all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> Any:
        reduced = reduce(self, grads_and_vars)
        if global_batch.replicas() == 1:
            return reduced
        return list(zip(clip(self, [grad for grad, _ in reduced]), [variable for _, variable in reduced]))

    if not has_in_source(reduce, "_clip_gradients"):
        yield TFOptimizer, "_clip_gradients", _clip_gradients
        yield TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients


def overflow(trainer: Any) -> Iterator[Change]:
    """A worker whose float16 gradients overflowed skipped a step while the others waited: now all skip it."""
    import tensorflow as tf
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    original = LossScaleOptimizer.check_finite

    @functools.wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = original(self, grads)
        if global_batch.replicas() == 1:
            return finite
        return global_batch.sum_over_replicas(tf.cast(tf.logical_not(finite), tf.float32)) == 0

    if not has_in_source(original, "all_reduce"):
        yield LossScaleOptimizer, "check_finite", check_finite


def counting(trainer: Any) -> Iterator[Change]:
    """`optimizer.iterations` lost counts when workers shared a parameter server: 285 instead of 400."""
    from keras.src.backend.tensorflow.core import Variable

    for name, fault in (
        ("assign_add", "self.assign(self + value)"),
        ("assign_sub", "self.assign(self - value)"),
    ):
        if has_in_source(getattr(Variable, name), fault):
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
