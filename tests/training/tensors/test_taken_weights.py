"""Which of a State's objects are weights, and what is said of those that do not fit."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from oarlock.training.tensors import capture, taken_weights
from oarlock.training.tensors.capture import MismatchError
from oarlock.training.tensors.tensor_bytes import Leaf


class Layer(NamedTuple):
    w: Any


def saved(**objects: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The objects as a checkpoint has them."""
    leaves: dict[str, Leaf] = {}
    trees = {name: capture.capture(name, value, leaves) for name, value in objects.items()}
    pieces = {}
    for name, leaf in leaves.items():
        memory = memoryview(bytearray(leaf.shape.bytes))
        leaf.write(memory)
        pieces[name] = [(leaf.shape, memory)]
    return trees, pieces


def test_arrays_of_floats_are_taken_where_they_are() -> None:
    before = {"layers": [np.ones(3), np.full((2, 2), 2.0)], "seen": np.arange(3), "rate": 0.5}
    trees, pieces = saved(params=before, best=0.25, momentum=np.ones(3))
    arrays = [np.zeros(3), np.zeros((2, 2))]
    params: dict[str, Any] = {"layers": arrays, "seen": np.zeros(3, int), "rate": 0.1}
    objects: dict[str, Any] = {"params": params, "best": None, "momentum": np.zeros(3), "extra": 7}
    assert taken_weights.take(objects, trees, pieces) == ["params"]
    assert objects["params"] is params, "the program may hold other references to it"
    assert params["layers"] is arrays
    assert [float(one.sum()) for one in arrays] == [3.0, 8.0]
    assert (params["seen"].tolist(), params["rate"]) == ([0, 0, 0], 0.1)
    assert (objects["best"], objects["momentum"].tolist(), objects["extra"]) == (None, [0, 0, 0], 7)


@pytest.mark.parametrize(
    "case",
    ["take_with_optax", "take_numpy_into_jax", "take_jax_into_numpy", "convert_in_jax", "take_from_keras"],
)
def test_objects_of_jax_and_keras(case: str) -> None:
    """In a process of its own: JAX warns at every fork of one that has started it."""
    program = f"from {__name__} import {case}; {case}()"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr


def take_with_optax() -> None:
    jax, optax = import_module("jax"), import_module("optax")
    tool = optax.chain(optax.clip(1.0), optax.adam(0.1))

    def everything(value: float) -> dict[str, Any]:
        params = {"w": jax.numpy.full((2, 3), value)}
        inner = jax.tree_util.tree_map(lambda one: one + value, tool.init(params))
        return {"params": params, "inner": inner, "key": jax.random.key(int(value)), "step": int(value)}

    trees, pieces = saved(train=everything(5.0))
    objects: dict[str, Any] = {"train": everything(1.0)}
    assert taken_weights.take(objects, trees, pieces) == ["train"]
    found = objects["train"]
    assert float(found["params"]["w"].sum()) == 30.0
    for mine, other in zip(
        jax.tree_util.tree_leaves(found["inner"]), jax.tree_util.tree_leaves(everything(1.0)["inner"])
    ):
        assert (mine == other).all()
    assert (found["step"], found["key"] == jax.random.key(1)) == (1, True)


def nested(arrays: Any, value: float, **more: Any) -> dict[str, Any]:
    """The parameters of a program that keeps the state of its optimizer beside them."""
    layers = [arrays.full(3, value), Layer(arrays.full((2, 2), value))]
    return {"layers": layers, "opt_state": arrays.full(3, value), "seen": int(value), **more}


def take_numpy_into_jax() -> None:
    jnp = import_module("jax.numpy")
    trees, pieces = saved(train={"layers": [np.ones(3), [np.ones((2, 2))]], "opt_state": np.ones(3)})
    objects: dict[str, Any] = {"train": nested(jnp, 0, layers=[jnp.zeros(3), [jnp.zeros((2, 2))]])}
    assert taken_weights.take(objects, trees, pieces) == ["train"]
    first, [second] = objects["train"]["layers"]
    assert isinstance(first, import_module("jax").Array)
    assert [float(one.sum()) for one in (first, second)] == [3.0, 4.0]
    assert (float(objects["train"]["opt_state"].sum()), objects["train"]["seen"]) == (0.0, 0)
    objects["train"]["layers"][0] = jnp.zeros(4)
    with pytest.raises(MismatchError, match=r"^train: layers\.0 had shape \(3,\) and has \(4,\) now$"):
        taken_weights.take(objects, trees, pieces)


def take_jax_into_numpy() -> None:
    trees, pieces = saved(train=nested(import_module("jax.numpy"), 5.0))
    train = nested(np, np.float32(0))
    first, layer = arrays = train["layers"]
    assert taken_weights.take({"train": train}, trees, pieces) == ["train"]
    assert train["layers"] is arrays
    assert [float(one.sum()) for one in (first, layer.w)] == [15.0, 20.0], "in place"
    assert (float(train["opt_state"].sum()), train["seen"]) == (0.0, 0)
    with pytest.raises(MismatchError, match=r"^train: train\.more is new$"):
        taken_weights.take({"train": nested(np, 0.0, more=np.zeros(1))}, trees, pieces)


def convert_in_jax() -> None:
    jnp = import_module("jax.numpy")
    trees, pieces = saved(params={"w": jnp.full(3, 1.5), "b": jnp.float32(2)})
    objects = {"params": {"w": jnp.zeros(3, jnp.bfloat16), "b": jnp.zeros((), jnp.float16)}}
    assert taken_weights.take(objects, trees, pieces) == ["params"]
    w, b = objects["params"]["w"], objects["params"]["b"]
    assert (w.dtype.name, b.dtype.name) == ("bfloat16", "float16")
    assert (float(w.sum()), float(b)) == (4.5, 2.0)


def test_a_plain_number_of_numpy_is_no_weight() -> None:
    trees, pieces = saved(params={"w": np.ones(3), "best": np.float64(5)}, best=np.float64(9))
    objects: dict[str, Any] = {
        "params": {"w": np.zeros(3), "best": np.float64(1)},
        "best": np.float64(1),
    }
    assert taken_weights.take(objects, trees, pieces) == ["params"]
    assert (objects["params"]["best"], objects["best"]) == (1.0, 1.0)


def test_weights_are_converted_to_the_programs_types() -> None:
    trees, pieces = saved(params={"w": np.full((2, 3), 0.5), "b": np.ones((), np.float16)})
    w, b = np.zeros((2, 3), np.float32), np.zeros(())
    objects: dict[str, Any] = {"params": {"w": w, "b": b}}
    assert taken_weights.take(objects, trees, pieces) == ["params"]
    assert objects["params"]["w"] is w, "the program may hold other references to it"
    assert objects["params"]["b"] is b
    assert (w.dtype, float(w.sum()), b.dtype, float(b)) == (np.float32, 3.0, np.float64, 1.0)


def test_what_does_not_fit_is_told_together() -> None:
    trees, pieces = saved(params={"a": np.zeros(3), "b": np.zeros(3), "c": np.zeros(3), "d": np.zeros(3)})
    objects = {"params": {"a": np.zeros(4), "b": np.zeros(4), "new": np.zeros(1), "d": np.zeros(4)}}
    with pytest.raises(MismatchError) as told:
        taken_weights.take(objects, trees, pieces)
    assert str(told.value) == (
        "params: params.a had shape (3,) and has (4,) now; params.b had shape (3,) and has (4,) now; "
        "params.new is new, and 1 more"
    )


def test_weights_without_their_like_and_no_weights_at_all_are_told() -> None:
    trees, pieces = saved(model={"w": np.zeros(3)}, seen=3)
    with pytest.raises(MismatchError, match=r"^it has no network; it has model, seen$"):
        taken_weights.take({"network": {"w": np.zeros(3)}}, trees, pieces)
    with pytest.raises(MismatchError, match=r"^none of the objects of this program \(seen\) has weights$"):
        taken_weights.take({"seen": 0}, trees, pieces)


def test_torch_modules_are_and_optimizers_are_not() -> None:
    torch = pytest.importorskip("torch")

    def everything(value: float) -> dict[str, Any]:
        model = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(model.weight, value)
        optimizer = torch.optim.SGD(model.parameters(), lr=value)
        return {"model": model, "tool": optimizer, "plan": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    trees, pieces = saved(**everything(3.0))
    objects = everything(1.0)
    assert taken_weights.take(objects, trees, pieces) == ["model"]
    assert objects["model"].weight.tolist() == [[3.0, 3.0]]
    assert objects["tool"].param_groups[0]["lr"] == 1.0


def test_a_module_may_be_named_like_the_state_of_an_optimizer() -> None:
    torch = pytest.importorskip("torch")

    def everything(value: float) -> dict[str, Any]:
        model = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(model.weight, value)
        return {"gen": model, "adam_disc": model, "optimizer": torch.optim.SGD(model.parameters(), lr=value)}

    trees, pieces = saved(**everything(3.0))
    objects = everything(1.0)
    assert taken_weights.take(objects, trees, pieces) == ["gen", "adam_disc"]
    assert objects["optimizer"].param_groups[0]["lr"] == 1.0


def take_from_keras() -> None:
    """Its model is named like the state of an optimizer."""
    keras = import_module("keras")

    def everything(value: float) -> dict[str, Any]:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.set_weights([np.full((2, 1), value), np.zeros(1)])
        optimizer = keras.optimizers.Adam(value)
        optimizer.build(model.trainable_variables)
        return {
            "optical": model,
            "optimizer": optimizer,
            "adam_mean": keras.metrics.Mean(),
            "scale": keras.Variable(value),
            "seen": keras.Variable(int(value), dtype="int32"),
        }

    trees, pieces = saved(**everything(3.0))
    objects = everything(1.0)
    assert taken_weights.take(objects, trees, pieces) == ["optical", "scale"]
    assert (float(objects["scale"]), int(objects["seen"])) == (3.0, 1)
    assert float(objects["optical"].get_weights()[0].sum()) == 6.0
    assert float(objects["optimizer"].learning_rate) == 1.0
