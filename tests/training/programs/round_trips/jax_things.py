"""Pytrees of JAX, on two devices."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from typing import Any, NamedTuple
from unittest import mock

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from round_trip import go_through, refused, restore, save, through, unkeepable

from oarlock.training.saving import jax_copy
from oarlock.training.saving.session import CheckpointSession
from oarlock.training.tensors import tensor_bytes


class Moments(NamedTuple):
    count: Any
    mu: Any


def params():
    keys = jax.random.split(jax.random.key(0), 3)
    return {
        "dense": [{"w": jax.random.normal(keys[0], (5, 3)), "b": jnp.zeros(3)}, (jnp.ones(()), None)],
        "half": jax.random.normal(keys[1], (7,), jnp.bfloat16),
        "half16": jax.random.normal(keys[2], (2, 2), jnp.float16),
        "int": jnp.arange(4),
        "flags": jnp.array([True, False]),
        "empty": jnp.zeros((0, 2)),
        "float8": jnp.ones(3, jnp.float8_e4m3fn),
        "complex": jnp.array([1 + 2j]),
        "moments": Moments(jnp.int32(3), {"w": jnp.full(2, 0.1)}),
        "numpy": np.arange(3.0),
        "rate": 0.1,
        "steps": 2**60 + 1,
    }


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        assert type(left) is type(right), (type(left), type(right))
        if isinstance(left, (jax.Array, np.ndarray)):
            assert (left.dtype, left.shape) == (right.dtype, right.shape)
            assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
        else:
            assert left == right


def case_a_nested_tree():
    before = params()
    fresh = jax.tree.map(lambda x: x * 0 if not isinstance(x, (int, float)) else 0, params())
    after = through({"params": before}, {"params": fresh})["params"]
    same(before, after)
    assert isinstance(after["moments"], Moments)


def case_keys_of_random_numbers():
    before = {
        "key": jax.random.key(5),
        "old": jax.random.PRNGKey(6),
        "many": jax.random.split(jax.random.key(1), 4),
    }
    before["rbg"] = jax.random.key(7, impl="rbg")
    fresh = {
        "key": jax.random.key(0),
        "old": jax.random.PRNGKey(0),
        "many": jax.random.split(jax.random.key(0), 4),
    }
    fresh["rbg"] = jax.random.key(0, impl="rbg")
    after = through({"keys": before, "one": jax.random.key(9)}, {"keys": fresh, "one": jax.random.key(0)})
    for name in before:
        assert after["keys"][name].dtype == before[name].dtype
        assert after["keys"][name].shape == before[name].shape
    for name in ("key", "old", "rbg"):
        drawn = [jax.random.normal(keys[name], (4,)) for keys in (before, after["keys"])]
        assert (drawn[0] == drawn[1]).all()
    assert (jax.random.normal(after["one"], (3,)) == jax.random.normal(jax.random.key(9), (3,))).all()


def case_arrays_come_back_where_they_were():
    mesh = jax.make_mesh((2,), ("data",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    before = {
        "spread": jax.device_put(jnp.arange(8.0), spread),
        "all": jax.device_put(jnp.ones(3), everywhere),
    }
    before["free"] = jnp.ones(())
    before["second"] = jax.device_put(jnp.ones(2), jax.devices()[1])
    after = through({"x": before}, {"x": jax.tree.map(jnp.zeros_like, before) | {"free": jnp.zeros(())}})["x"]
    fresh = jax.tree.map(lambda a: jax.device_put(jnp.zeros_like(a), a.sharding), before)
    fresh["free"] = jnp.zeros(())
    after = restore({"x": fresh})["x"]
    same(before, after)
    for name in before:
        assert after[name].sharding == fresh[name].sharding, name
    jax.jit(lambda a, b: a + b)(after["spread"], after["free"])  # may go where the other is


def case_a_tree_goes_on_after_donation():
    step = jax.jit(lambda w: w * 2 + 1, donate_argnums=0)
    after = through({"w": jnp.arange(64.0)}, {"w": jnp.zeros(64)})["w"]
    assert (step(after) == jnp.arange(64.0) * 2 + 1).all()


def case_a_number_that_became_an_array():
    save({"loss": jnp.float32(0.5)})
    assert float(restore({"loss": 0.0})["loss"]) == 0.5


def case_mismatches_are_said_in_a_sentence():
    tree = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    why = refused({"p": tree}, {"p": {"w": jnp.ones((2, 4)), "b": jnp.ones(3)}})
    assert why == "p.w had shape (2, 3) and has (2, 4) now", why
    why = refused({"p": tree}, {"p": {"w": jnp.ones((2, 3))}})
    assert why == "p had 2 leaves and has 1 now", why
    why = refused({"p": tree}, {"p": tree, "opt": tree})
    assert why == "it has no opt", why
    why = refused({"p": tree}, {"p": {"w": jnp.ones((2, 3)), "c": jnp.ones(3)}})
    assert why == "p had the leaf b where it has c now", why


def case_what_cannot_be_kept_is_named():
    told = unkeepable({"x": jnp.ones(4, jnp.int4)})
    assert told.endswith("of int4, which cannot be saved"), told


def donated_during_the_save(room):
    """As on an accelerator, where the step after a save donates what is still to be taken over."""
    donated = threading.Event()
    before_it = jax_copy.JaxCopies.wait

    def wait(copies):
        assert donated.wait(60)
        before_it(copies)

    with (
        mock.patch.object(tensor_bytes, "_is_on_cpu", return_value=False),
        mock.patch.object(jax_copy, "_free", return_value=room),
        mock.patch.object(jax_copy.JaxCopies, "wait", wait),
    ):
        tree = {"w": jnp.arange(1 << 20, dtype=jnp.float32), "on_both": across(jnp.arange(8.0))}
        before = jax.tree.map(np.asarray, jax.tree.map(jnp.copy, tree))
        os.environ["CHECKPOINT_DIR"] = tempfile.mkdtemp(dir=sys.argv[1])
        session = CheckpointSession()
        assert session.save(1, {"tree": tree}, {}, None)
        step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 - 1, tree), donate_argnums=0)
        after = step(tree)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(tree)), "this JAX donates nothing"
        donated.set()
        session.finish()
        session.close()
        fresh = {"tree": jax.tree.map(jnp.zeros_like, after)}
        CheckpointSession().restore(fresh)
        for name, expected in before.items():
            assert np.array_equal(np.asarray(fresh["tree"][name]), expected), name


def across(array):
    mesh = jax.sharding.Mesh(jax.devices(), "x")
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))


def case_arrays_that_the_next_step_donates():
    donated_during_the_save(float("inf"))


def case_arrays_that_the_next_step_donates_without_room_for_a_copy():
    donated_during_the_save(0.0)


if __name__ == "__main__":
    go_through(globals())
