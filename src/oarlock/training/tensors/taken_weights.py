"""Take the weights out of another run's checkpoint, and nothing else.

torch       modules; not optimizers, schedulers, scalers
Keras, TF   models, layers, tf.Module and float variables; not optimizers and metrics
pytrees     float arrays of JAX and NumPy, also in dicts and lists; not what optax made, and nothing
            named like the state of an optimizer. Counters, keys and plain numbers stay as they are
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from oarlock.checkpoints.safetensors import Shape
from oarlock.training.tensors import capture, tensor_bytes
from oarlock.training.tensors.capture import MismatchError, Saved, Tree
from oarlock.training.tensors.tensor_bytes import Leaf, Piece

_OPTIMIZERS = ("opt", "moment", "velocity", "adam")  # prefixes of names of their state: opt_state, momentum
_ARRAYS = ("pytree", "plain")  # JAX's and NumPy's: the weights of one fit the other
_SHOWN = 3  # differences in an error


def take(objects: dict[str, Any], trees: Mapping[str, Tree], saved: Saved) -> list[str]:
    """Put the weights into the objects, and return the names of the objects that have any.

    Raises MismatchError.
    """
    taken = []
    for name, value in objects.items():
        if not _may_hold_weights(name, value):
            continue
        if name in trees:
            objects[name], count = _Taking(name, saved).into(value, trees[name])
            taken += [name] if count else []
        elif not _is_plain(value) or _has_floats(value):
            there = ", ".join(sorted(trees)) or "nothing"
            raise MismatchError(f"it has no {name}; it has {there}")
    if not taken:
        names = ", ".join(sorted(objects)) or "nothing"
        raise MismatchError(f"none of the objects of this program ({names}) has weights")
    return taken


def _may_hold_weights(name: str, value: Any) -> bool:
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return hasattr(value, "named_parameters")
    if hasattr(value, "apply_gradients") or hasattr(value, "update_state"):
        return False  # Keras's optimizers and metrics
    if hasattr(value, "assign") and hasattr(value, "shape"):
        return _is_float(value.dtype)  # a single variable; one of integers counts something
    return not (name.startswith(_OPTIMIZERS) and _is_plain(value))  # a model may have any name


def _is_plain(value: Any) -> bool:
    return bool({"plain", "pytree"} & capture.capture("", value, {}).keys())


def _has_floats(value: Any) -> bool:
    found: dict[str, Leaf] = {}
    capture.capture("", value, found)
    return any(_is_float(leaf.shape.dtype) for leaf in found.values())


def _is_float(dtype: Any) -> bool:
    return "float" in str(dtype) or "complex" in str(dtype)


def _is_of_floats(value: Any) -> bool:
    """Whether it is an array of floats. NumPy's float64 is a plain number: it is a Python float, too."""
    return _is_float(getattr(value, "dtype", "")) and not isinstance(value, float)


class _Taking:
    """The weights of one object. `_different` collects everything that does not fit, for one message."""

    def __init__(self, name: str, saved: Saved) -> None:
        self._name = name
        self._saved = saved
        self._different: list[str] = []
        self._count = 0

    def into(self, value: Any, tree: Tree) -> tuple[Any, int]:
        """The object with the weights, and the number of tensors taken. Raises MismatchError."""
        found: dict[str, Leaf] = {}
        ((kind, before),) = tree.items()
        ((now, inside),) = capture.capture(self._name, value, found).items()
        if now == "pytree" and kind in _ARRAYS:
            leaves = dict(before) if kind == "pytree" else _leaves(before)
            value = self._into_pytree(value, inside, leaves)
        elif now == "plain" and kind in _ARRAYS:
            before = _arranged_like(value, dict(before)) if kind == "pytree" else before
            value = self._into_plain(self._name, value, before)
        else:  # a whole module or model, or one whose kind has changed
            if kind == now == "variables":
                self._compare_variables(value, before, [found[one["tensor"]] for one in inside])
            self._refuse()
            value, self._count = capture.restore(self._name, value, tree, self._saved), len(found)
        self._refuse()
        return value, self._count

    def _refuse(self) -> None:
        if self._different:
            more = len(self._different) - _SHOWN
            rest = f", and {more} more" if more > 0 else ""
            raise MismatchError(f"{self._name}: {'; '.join(self._different[:_SHOWN])}{rest}")

    def _compare_variables(self, value: Any, before: Sequence[Tree], now: Sequence[Leaf]) -> None:
        if len(before) != len(now):
            self._different.append(f"it had {len(before)} variables and has {len(now)} now")
        variables = getattr(value, "variables", ())
        variables = variables() if callable(variables) else variables
        names = [str(getattr(one, "path", getattr(one, "name", ""))) for one in variables]
        if len(names) != len(now):
            names = [f"variable {number}" for number in range(len(now))]
        for name, one, leaf in zip(names, before, now):
            self._fits(name, one["tensor"], leaf.shape.whole or leaf.shape.size)

    def _into_pytree(self, value: Any, now: Sequence[tuple[str, Tree]], before: dict[str, Tree]) -> Any:
        import jax

        leaves, shape = jax.tree_util.tree_flatten(value)
        made = []
        for (path, _), leaf, is_optax in zip(now, leaves, _made_by_optax(jax, value)):
            is_weight = not is_optax and not _is_of_optimizer(path) and _is_of_floats(leaf)
            made.append(self._new(path, leaf, before.get(path)) if is_weight else leaf)
        return jax.tree_util.tree_unflatten(shape, made)

    def _into_plain(self, path: str, old: Any, tree: Tree | None) -> Any:
        """Into the existing dicts, lists and arrays: the program may hold other references to them."""
        ((kind, inside),) = (tree or {"value": None}).items()
        if isinstance(old, Mapping):
            before = dict(inside) if kind in ("dict", "counter") else {}
            items = {
                key: item
                if str(key).startswith(_OPTIMIZERS)
                else self._into_plain(f"{path}.{key}", item, before.get(key))
                for key, item in old.items()
            }
            if isinstance(old, dict):
                old.update(items)
                return old
            return items
        if isinstance(old, (list, tuple)):
            each = list(inside) if kind in ("list", "tuple") else []
            each += [None] * (len(old) - len(each))
            made = [
                self._into_plain(f"{path}.{n}", item, one) for n, (item, one) in enumerate(zip(old, each))
            ]
            if isinstance(old, list):
                old[:] = made
                return old
            return type(old)(*made) if hasattr(old, "_fields") else tuple(made)
        is_weight = hasattr(old, "shape") and hasattr(old, "__array__") and _is_of_floats(old)
        return self._new(path, old, tree) if is_weight else old

    def _new(self, path: str, old: Any, tree: Tree | None) -> Any:
        if tree is None or "tensor" not in tree:
            self._different.append(f"{path} is new")
            return old
        if not self._fits(path, tree["tensor"], getattr(old, "shape", ())):
            return old
        self._count += 1
        pieces = _converted(self._saved[tree["tensor"]], old.dtype)
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(old, jax.Array):
            return tensor_bytes.to_jax(pieces, old)
        return tensor_bytes.renew(old, pieces)

    def _fits(self, path: str, tensor: str, now: Sequence[int]) -> bool:
        shape = self._saved[tensor][0][0]
        before = tuple(shape.whole or shape.size)
        if before != tuple(now):
            self._different.append(f"{path} had shape {before} and has {tuple(now)} now")
        return before == tuple(now)


def _converted(pieces: Sequence[Piece], dtype: Any) -> Sequence[Piece]:
    """The tensor in the program's type. Variables and torch's tensors convert what is assigned to them."""
    np = sys.modules.get("numpy")
    if np is None or not isinstance(dtype, np.dtype) or dtype.name == pieces[0][0].dtype:
        return pieces
    array = np.ascontiguousarray(tensor_bytes.to_numpy(pieces).astype(dtype))
    shape = Shape(dtype.name, tuple(pieces[0][0].whole or pieces[0][0].size))
    return [(shape, memoryview(array.reshape(-1).view(np.uint8)))]


def _leaves(tree: Tree, path: str = "") -> dict[str, Tree]:
    """Plain values as the leaves of a pytree, by their dotted paths."""
    ((kind, inside),) = tree.items()
    if kind not in ("dict", "counter", "list", "tuple"):
        return {path: tree}
    items = inside if kind in ("dict", "counter") else enumerate(inside)
    return {place: leaf for key, item in items for place, leaf in _leaves(item, _below(path, key)).items()}


def _arranged_like(value: Any, leaves: Mapping[str, Tree], path: str = "") -> Tree | None:
    """The leaves of a pytree as plain values, in the program's own dicts and lists."""
    if isinstance(value, Mapping):
        return {"dict": [[key, _arranged_like(one, leaves, _below(path, key))] for key, one in value.items()]}
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        return {"list": [_arranged_like(one, leaves, _below(path, key)) for key, one in zip(names, value)]}
    return leaves.get(path)


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _is_of_optimizer(path: str) -> bool:
    return any(part.startswith(_OPTIMIZERS) for part in path.split("."))


def _made_by_optax(jax: Any, value: Any) -> list[bool]:
    """For each leaf: whether it is inside something that optax made."""

    def is_optax(node: Any) -> bool:
        return type(node).__module__.partition(".")[0] == "optax"

    flags: list[bool] = []
    for top in jax.tree_util.tree_leaves(value, is_leaf=is_optax):
        flags += [is_optax(top)] * len(jax.tree_util.tree_leaves(top))
    return flags
