"""What Keras's `fit`, `evaluate` and `predict` cannot do with several workers, in one sentence each.

Without these checks each case gave wrong weights, hung, or ended in an error that mentions nothing the
program wrote. The error is raised before the first step; if there is a right alternative, it is used, with
one warning.
"""

from __future__ import annotations

import warnings
from typing import Any

from oarlock.training.frameworks import randomness


class KerasRefusedError(ValueError):
    """Keras would train something other than what the program says: what, and what to write instead."""


_said: set[str] = set()


def say_once(sentence: str, stacklevel: int = 4) -> None:
    """Warn, once per sentence and process."""
    if sentence in _said:
        return
    _said.add(sentence)
    warnings.warn(f"oarlock: {sentence}", UserWarning, stacklevel=stacklevel)


def refuse_several_replicas(strategy: Any) -> None:
    """Refuse parameter servers whose workers have several GPUs each: all would train on the same batch."""
    if strategy.num_replicas_in_sync > 1:
        raise KerasRefusedError(
            f"fit with ParameterServerStrategy needs workers with one GPU each, and these have"
            f" {strategy.num_replicas_in_sync}: start more workers (gpu: 1), or write the loop with"
            " tf.distribute.coordinator.ClusterCoordinator"
        )


def refuse_unsharded(*datasets: Any) -> None:
    """Refuse datasets that would give every worker the same part."""
    import tensorflow as tf

    # Measured with AutoShardPolicy.OFF: TensorFlow still splits each batch by the number of workers, but
    # gives every worker the same pieces; weights off by 0.11 (2 workers) and 0.13 (4), silently.
    for given in datasets:
        dataset = getattr(given, "_original_dataset", given)  # from strategy.experimental_distribute_dataset
        if not isinstance(dataset, tf.data.Dataset):
            continue
        policy = dataset.options().experimental_distribute.auto_shard_policy
        if policy == tf.data.experimental.AutoShardPolicy.OFF:
            raise KerasRefusedError(
                "a tf.data dataset with AutoShardPolicy.OFF makes every worker train on the same part of"
                " each batch: batch by the global batch size and leave the policy at AUTO or DATA, or give"
                " each worker its own batches with strategy.distribute_datasets_from_function"
            )


def refuse_optimizer_from_elsewhere(model: Any, strategy: Any) -> None:
    """Refuse an optimizer that was created outside the strategy's scope."""
    # Failed with "Mixing different tf.distribute.Strategy objects".
    optimizer = getattr(model, "optimizer", None)  # predict needs no compile
    if optimizer is not None and optimizer._distribution_strategy is not strategy:
        raise KerasRefusedError(
            f"the optimizer {optimizer.name} was created outside strategy.scope(), so the workers would not"
            " share its state: create it inside the scope"
        )


def refuse_metrics_from_elsewhere(model: Any, strategy: Any) -> None:
    """Refuse metrics that were created outside the strategy's scope."""
    # Measured with AUC: each worker counted its own rows only, 181 of 383.
    for group in model.metrics:
        for metric in getattr(group, "metrics", [group]):
            if any(getattr(v.value, "distribute_strategy", None) is not strategy for v in metric.variables):
                raise KerasRefusedError(
                    f"the metric {metric.name} was created outside strategy.scope(), so it would count the"
                    " rows of one worker only: create it inside the scope"
                )


def refuse_gradient_accumulation(model: Any) -> None:
    """Refuse gradient_accumulation_steps."""
    # Fails with "merge_call called while defining a new graph": Keras sums over workers inside a condition.
    steps = getattr(model.optimizer, "gradient_accumulation_steps", None)
    if steps:
        raise KerasRefusedError(
            f"gradient_accumulation_steps={steps} does not work with several workers in Keras 3:"
            f" multiply the batch size by {steps} instead, or write a custom training loop"
        )


def one_step_per_execution(model: Any) -> None:
    """Set steps_per_execution to 1, with a warning."""
    # Failed with "must feed a value for placeholder"; unrolled, it counted 22 iterations for 20.
    if model.steps_per_execution > 1:
        say_once(
            f"steps_per_execution={model.steps_per_execution} does not work with several workers,"
            " so each execution runs one step"
        )
        model.steps_per_execution = 1
        _forget_functions(model)


def no_xla_on_cpu(model: Any, strategy: Any) -> None:
    """Turn jit_compile off on CPUs, with a warning."""
    # Failed with "collectives are not implemented" on the XLA CPU device.
    if model.jit_compile and not any("GPU" in device for device in strategy.extended.worker_devices):
        say_once("jit_compile=True does not work with several workers on CPUs, so the model runs without XLA")
        model.jit_compile = False
        _forget_functions(model)


def unsynchronized_batch_norm(model: Any) -> None:
    """Warn about BatchNormalization whose statistics differ between workers."""
    from keras.layers import BatchNormalization

    for layer in model._flatten_layers():
        if isinstance(layer, BatchNormalization) and layer.trainable and not layer.synchronized:
            say_once(
                f"the moving statistics of {layer.name} differ between workers, so an exported or restored"
                " model depends on which worker saved it: write BatchNormalization(synchronized=True)"
            )
            return


def unseeded_shuffle(x: Any, shuffle: Any) -> None:
    """Warn about a shuffle in which every worker has its own order."""
    from keras.utils import PyDataset
    from tensorflow.python.eager import context

    keras_shuffles = isinstance(x, (dict, list, tuple, PyDataset)) or hasattr(x, "shape")
    seed = context.global_seed()
    if shuffle and keras_shuffles and (seed is None or randomness.is_ours(seed)):
        say_once(
            "without a seed every worker shuffles in its own order, so an epoch repeats some rows and"
            " misses others: call keras.utils.set_random_seed(n) with the same n on all workers"
        )


def _forget_functions(model: Any) -> None:
    """Drop the functions traced with the old setting; Keras traces them again."""
    model.train_function = model.test_function = model.predict_function = None
