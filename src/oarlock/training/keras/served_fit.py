"""Keras 3's `fit` with ParameterServerStrategy: the chief hands out the batches, and workers train on them.

Keras passes its dataset to the strategy, which cannot distribute one ("pass this dataset to
ClusterCoordinator.create_per_worker_dataset"). Here the chief reads the dataset as a single process would,
and schedules a step for each batch. So every example is used once in each epoch, in the same order, with any
number of workers, and any input that `fit` accepts works. Metrics are counted on the servers. `evaluate` and
`predict` run on the chief.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oarlock.training.frameworks import coordinators
from oarlock.training.keras.keras_source import Change

_strategies: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # of models in `fit`
_LEAST_EPSILON = 1e-3  # of Adam: with it none of 14 runs exploded; with the default 1e-7, 3 of 12 did


def is_served(strategy: Any) -> bool:
    """Whether parameter servers hold the variables."""
    return bool(getattr(strategy, "_should_use_with_coordinator", False))


@contextmanager
def serving(model: Any) -> Iterator[None]:
    """Let Keras run its loop as if without a strategy; only the training steps leave this process."""
    _warn_of_adam(model.optimizer)
    strategy, model._distribute_strategy = model._distribute_strategy, None
    _strategies[model] = strategy
    model.train_function = model.test_function = model.predict_function = None
    try:
        yield
    finally:
        del _strategies[model]
        model._distribute_strategy = strategy
        model.train_function = model.test_function = model.predict_function = None


def _warn_of_adam(optimizer: Any) -> None:
    """Adam updates its two averages one after the other. A worker that reads between another worker's two
    updates divides the first, which has moved, by epsilon plus the root of the second, which is still 0."""
    epsilon = getattr(optimizer, "epsilon", None)
    if hasattr(optimizer, "beta_2") and epsilon is not None and epsilon < _LEAST_EPSILON:
        warnings.warn(
            f"oarlock: {type(optimizer).__name__} with epsilon={epsilon:g} may explode on parameter servers, "
            f"where workers update at the same time; use Adagrad, or epsilon={_LEAST_EPSILON:g}",
            stacklevel=2,
        )


def changes(trainer: Any) -> Iterator[Change]:
    """What `fit` does differently with parameter servers."""
    owner = trainer.TensorFlowTrainer
    build, make, result = owner._maybe_symbolic_build, owner._make_function, owner._get_metrics_result_or_logs

    @functools.wraps(build)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = _strategies.get(self)
        if strategy is None:
            build(self, iterator=iterator, data_batch=data_batch)
            return
        if iterator is not None:
            *_, batches = next(iter(iterator))
            data_batch = next(batches)
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)
        for metric in self.metrics:
            for one in getattr(metric, "metrics", [metric]):
                _count_in_place(one)

    @functools.wraps(make)
    def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Any:
        strategy = _strategies.get(self)
        if strategy is None or step_function != self.train_step:
            return make(self, step_function)
        return _scheduling(self, strategy, step_function)

    @functools.wraps(result)
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        if self in _strategies:
            coordinators.join()
            logs = {n: float(value) if isinstance(value, _Metric) else value for n, value in logs.items()}
        return result(self, logs)

    yield owner, "_maybe_symbolic_build", _maybe_symbolic_build
    yield owner, "_make_function", _make_function
    yield owner, "_get_metrics_result_or_logs", _get_metrics_result_or_logs


def _scheduling(model: Any, strategy: Any, step: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A `train_function` that returns before the step is done, with the metrics of a finished one."""
    import tensorflow as tf

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    scheduled: deque[Any] = deque()
    logs: dict[str, _Metric] = {}

    def on_worker(data: Any) -> Any:
        return strategy.run(model._autoconvert_optionals(step), args=(data,))

    one_step = tf.function(on_worker, reduce_retracing=True)

    def train_function(batches: Any) -> dict[str, _Metric]:
        for _ in range(model.steps_per_execution):
            data = next(batches)
            coordinators.keep_up()
            scheduled.append(coordinator.schedule(one_step, args=(data,)))
        if not logs:  # the first time, to learn their names
            logs.update({name: _Metric(name) for name in scheduled[-1].fetch()})
        while scheduled and coordinators.is_done(scheduled[0]):
            for metric in logs.values():
                metric.logs = scheduled[0]
            scheduled.popleft()
        return logs

    return train_function


class _Metric:
    """A number of the newest finished step, fetched from its worker when it is read."""

    shape = ()
    logs: Any = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __float__(self) -> float:
        try:
            return float(self.logs.fetch()[self._name])
        except Exception:  # the worker is gone, and the number with it
            return float("nan")

    def __format__(self, how: str) -> str:
        return format(float(self), how)


def _count_in_place(metric: Any) -> None:
    """Make a metric compute one batch from zero and add the result to its variables on the servers.
    Some metrics read, add and write back, and lost what another worker wrote in between."""
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import StatelessScope, in_stateless_scope

    original = metric.update_state
    if hasattr(original, "counts_in_place"):
        return

    @functools.wraps(original)
    def update_state(*args: Any, **kwargs: Any) -> Any:
        if in_stateless_scope() or not metric.variables:
            return original(*args, **kwargs)
        with StatelessScope(
            state_mapping=[(v, tf.zeros(v.shape, v.dtype)) for v in metric.variables]
        ) as scope:
            original(*args, **kwargs)
        for variable in metric.variables:
            variable.assign_add(scope.get_current_value(variable))
        return None

    update_state.counts_in_place = True  # type: ignore[attr-defined]
    metric.update_state = update_state
