"""What a program keeps (models, optimizers, pytrees, numbers) as a tree with tensors for leaves, and back.

torch       whatever has state_dict() and load_state_dict(): modules, optimizers, schedulers, scalers
Keras, TF   whatever has variables: models, optimizers, metrics; and single variables. A Keras 3 model's
            variables hold the state of its seed generators, so Dropout goes on where it was
JAX         any pytree; its arrays come back placed as they were
plain       dict, list, tuple, NumPy arrays, numbers, strings
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oarlock.training.saving import tensor_bytes
from oarlock.training.saving.tensor_bytes import Leaf, Piece

Tree = dict[str, Any]
Saved = Mapping[str, Sequence[Piece]]


_SHOWN = 3  # differences between a checkpoint and a model


class MismatchError(ValueError):
    """What was saved does not fit what there is now."""


@dataclass(frozen=True)
class Variables:
    """Some that belong to no one thing: a model's metrics."""

    variables: list[Any]


def capture(name: str, thing: Any, found: dict[str, Leaf]) -> Tree:
    """How it is put together; its tensors go into `found`, under names that say where they belong."""
    if _has_variables(thing):
        return {"variables": [_encode(f"{name}.{n}", one, found) for n, one in enumerate(_variables(thing))]}
    if _is_stateful(thing):
        return {"state_dict": _encode(name, _unwrapped(thing).state_dict(), found)}
    parts = _jax_leaves(thing)
    if parts is not None:
        return {"pytree": [[path, _encode(f"{name}.{path}", one, found)] for path, one in parts]}
    return {"plain": _encode(name, thing, found)}


def restore(name: str, thing: Any, tree: Tree, saved: Saved) -> Any:
    """The thing as it was saved: changed in place if it can be, else a new one."""
    ((kind, inside),) = tree.items()
    if kind == "variables" and _has_variables(thing):
        _assign(name, thing, inside, saved)
        return thing
    if kind == "state_dict" and _is_stateful(thing):
        inner = _unwrapped(thing)
        state = _decode(inside, _Tensors(saved, inner))
        try:
            inner.load_state_dict(state)
        except RuntimeError as error:
            raise MismatchError(_differences(name, state, inner.state_dict()) or str(error)) from error
        return thing
    if not _has_variables(thing) and not _is_stateful(thing):
        if kind == "pytree":
            return _unflatten(name, thing, inside, saved)
        if kind == "plain":
            return _renew(thing, inside, saved)
    raise MismatchError(f"{name} was saved as {kind}, which a {type(thing).__name__} is not")


def _differences(name: str, before: Any, now: Any) -> str:
    """The first few, and how many more: torch names every tensor of the model, in four kilobytes."""
    found = [f"{key} is new" for key in now if key not in before]
    found += [f"{key} is gone" for key in before if key not in now]
    for key in [key for key in now if key in before]:
        was, is_now = (tuple(getattr(state[key], "shape", ())) for state in (before, now))
        if was != is_now:
            found.append(f"{key} had the shape {was} and has {is_now} now")
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{name}: {'; '.join(found[:_SHOWN])}{more}" if found else ""


def _is_stateful(thing: Any) -> bool:
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


def _has_variables(thing: Any) -> bool:
    if isinstance(thing, Variables):
        return True
    makers = {one.__module__.partition(".")[0] for one in type(thing).__mro__}
    return bool(makers & {"keras", "tf_keras", "tensorflow"}) and (
        hasattr(thing, "variables") or _is_variable(thing)
    )


def _jax_leaves(thing: Any) -> list[tuple[str, Any]] | None:
    """By where they are. None if there is nothing of JAX in it: it may be imported for other reasons."""
    jax = sys.modules.get("jax")
    found = [] if jax is None else _with_paths(jax, thing)
    return found if any(isinstance(one, jax.Array) for _, one in found) else None  # type: ignore[union-attr]


def _with_paths(jax: Any, thing: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(thing)
    return [(".".join(map(_word, path)), one) for path, one in found]


def _word(key: Any) -> str:
    """Of a dict, a sequence, an object: each of JAX' keys has its own name for its name."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _is_variable(thing: Any) -> bool:
    return hasattr(thing, "assign") and hasattr(thing, "shape")  # Keras' optimizers can assign, too


def _variables(thing: Any) -> list[Any]:
    """A variable is its own only one; older optimizers have a method where newer ones have a list."""
    if _is_variable(thing):
        return [thing]
    return list(thing.variables() if callable(thing.variables) else thing.variables)


def _unwrapped(thing: Any) -> Any:
    """The user's module: a checkpoint does not depend on how many workers there were, or on compiling."""
    while True:
        if hasattr(thing, "_orig_mod"):
            thing = thing._orig_mod
        elif type(thing).__name__ in ("DistributedDataParallel", "DataParallel"):
            thing = thing.module
        else:
            return thing


def _encode(path: str, value: Any, found: dict[str, Leaf]) -> Tree:
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    made = tensor_bytes.leaf(value)
    if made is not None:
        while path in found:  # {"a.b": ...} beside {"a": {"b": ...}}
            path += "'"
        found[path] = made
        return {"tensor": path}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)):
                raise TypeError(
                    f"{path} has the key {key!r}: only text and whole numbers can be kept as keys"
                )
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[key, _encode(f"{path}.{key}", item, found)] for key, item in value.items()]}
    for kind, made_of in _SEQUENCES.items():
        if isinstance(value, made_of):
            return {kind: [_encode(f"{path}.{n}", item, found) for n, item in enumerate(value)]}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    numbers = f" of {value.dtype}" if hasattr(value, "dtype") else ""
    raise TypeError(f"{path} is a {kind}{numbers}, which cannot be kept")


_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set}


def _decode(tree: Tree, tensors: _Arrays, path: tuple[Any, ...] = ()) -> Any:
    ((kind, inside),) = tree.items()
    if kind == "value":
        return inside
    if kind == "tensor":
        return tensors.get(inside, path)
    if kind in ("dict", "counter"):
        made = {key: _decode(item, tensors, (*path, key)) for key, item in inside}
        return made if kind == "dict" else Counter(made)
    return _SEQUENCES[kind](_decode(item, tensors, (*path, n)) for n, item in enumerate(inside))


def _renew(old: Any, tree: Tree, saved: Saved) -> Any:
    """As it was saved, in the dicts, lists, arrays and variables there are now: the program may know them by
    other names than the State's."""
    ((kind, inside),) = tree.items()
    if kind == "tensor":
        return tensor_bytes.renew(old, saved[inside])
    if kind in ("dict", "counter") and isinstance(old, dict):
        items = {key: _renew(old.get(key), item, saved) for key, item in inside}
        old.clear()
        old.update(items)
        return old
    if kind in ("list", "tuple") and isinstance(old, _SEQUENCES[kind]):
        before = [*old, *[None] * len(inside)]
        made = [_renew(one, item, saved) for one, item in zip(before, inside)]
        if kind == "list":
            old[:] = made
            return old
        return type(old)(*made) if hasattr(old, "_fields") else tuple(made)
    return _decode(tree, _Arrays(saved))


class _Arrays:
    """Saved tensors as NumPy arrays of their own."""

    def __init__(self, saved: Saved) -> None:
        self._saved = saved

    def get(self, name: str, path: tuple[Any, ...]) -> Any:
        return tensor_bytes.to_numpy(self._saved[name]).copy()


class _Tensors(_Arrays):
    """Saved tensors for a torch module or optimizer: spread over ranks where what it has now is."""

    def __init__(self, saved: Saved, thing: Any) -> None:
        super().__init__(saved)
        groups = getattr(thing, "param_groups", None)
        self._is_optimizer = groups is not None
        self._known: dict[tuple[Any, ...], Any]
        if groups is None:
            self._known = {(name,): tensor for name, tensor in thing.state_dict().items()}
        else:
            params = [param for group in groups for param in group["params"]]
            self._known = {("state", number): param for number, param in enumerate(params)}

    def get(self, name: str, path: tuple[Any, ...]) -> Any:
        pieces = self._saved[name]
        like = self._known.get(path[:2] if self._is_optimizer else path)
        if pieces[0][0].whole is None and self._is_optimizer and like is not None:
            size = pieces[0][0].size
            like = like if tuple(like.shape) == size else None  # a step count is spread over nobody
        tensor = tensor_bytes.to_torch(pieces, like)
        return tensor.clone() if self._is_optimizer else tensor  # it would go on to work on the file's pages


def _assign(name: str, thing: Any, trees: list[Tree], saved: Saved) -> None:
    variables = _variables(thing)
    if len(trees) != len(variables):
        is_built = getattr(thing, "built", getattr(thing, "_built", not hasattr(thing, "build")))
        hint = "" if is_built else ": build it first, as `optimizer.build(model.trainable_variables)` does"
        raise MismatchError(f"{name} had {len(trees)} variables and has {len(variables)} now{hint}")
    for variable, tree in zip(variables, trees):
        array = tensor_bytes.to_numpy(
            saved[tree["tensor"]]
        ).copy()  # TensorFlow may go on to work on the very memory
        size = array.shape[len(array.shape) - len(variable.shape) :]  # a metric's has a share of each replica
        _compare(f"{name}: {getattr(variable, 'path', variable.name)}", size, variable.shape)
        tensor_bytes.assign(variable, array)


def _unflatten(name: str, thing: Any, trees: list[tuple[str, Tree]], saved: Saved) -> Any:
    import jax

    before, shape = _with_paths(jax, thing), jax.tree_util.tree_structure(thing)
    if len(before) != len(trees):
        raise MismatchError(f"{name} had {len(trees)} leaves and has {len(before)} now")
    after = []
    for (now, old), (path, tree) in zip(before, trees):
        if now != path:
            raise MismatchError(f"{name} had a leaf {path} where it has {now} now")
        if "tensor" not in tree:
            after.append(_decode(tree, _Arrays(saved)))
            continue
        pieces = saved[tree["tensor"]]
        if not _is_key(old):
            _compare(tree["tensor"], pieces[0][0].size, getattr(old, "shape", ()))
        after.append(
            tensor_bytes.to_jax(pieces, old)
            if isinstance(old, jax.Array)
            else tensor_bytes.to_numpy(pieces).copy()
        )
    return jax.tree_util.tree_unflatten(shape, after)


def _is_key(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _compare(what: str, before: Sequence[int], now: Sequence[int]) -> None:
    if tuple(before) != tuple(now):
        raise MismatchError(f"{what} had the shape {tuple(before)} and has {tuple(now)} now")
