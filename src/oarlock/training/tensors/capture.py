"""Turn the objects of a program (models, optimizers, pytrees, numbers) into a tree of tensors, and back.

torch       anything with state_dict() and load_state_dict(): modules, optimizers, schedulers, scalers
Keras, TF   anything with variables: models, optimizers, metrics; and single variables. A Keras 3 model's
            variables include the state of its seed generators, so Dropout resumes where it was
JAX         any pytree; its arrays are restored to the same placement
plain       dict, list, tuple, NumPy arrays, numbers, strings
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oarlock.run.quick_dataclass import dataclass
from oarlock.training.tensors import sharded_variables, tensor_bytes
from oarlock.training.tensors.gpu_restore import GpuRestore
from oarlock.training.tensors.tensor_bytes import Leaf, Piece

Tree = dict[str, Any]
Saved = Mapping[str, Sequence[Piece]]


_KINDS = {
    "variables": "variables of Keras or TensorFlow",
    "state_dict": "a state_dict",
    "pytree": "a pytree of JAX arrays",
    "plain": "plain values",
}
_SHOWN = 3  # differences between checkpoint and model to list in an error


class MismatchError(ValueError):
    """The checkpoint does not fit the program's objects."""


@dataclass(frozen=True)
class Variables:
    """Variables that belong to several objects, such as a model's metrics."""

    variables: list[Any]


def capture(name: str, value: Any, found: dict[str, Leaf]) -> Tree:
    """The structure of an object. Its tensors go into `found`, under names that say where they belong."""
    if _has_variables(value):
        return {
            "variables": [_encode(f"{name}.{n}", each, found) for n, each in enumerate(_variables(value))]
        }
    if _is_stateful(value):
        return {"state_dict": _encode(name, _unwrapped(value).state_dict(), found)}
    parts = _jax_leaves(value)
    if parts is not None:
        return {"pytree": [[path, _encode(f"{name}.{path}", part, found)] for path, part in parts]}
    return {"plain": _encode(name, value, found)}


def restore(name: str, value: Any, tree: Tree, saved: Saved) -> Any:
    """The object as it was saved: changed in place if possible, else a new one."""
    ((kind, inside),) = tree.items()
    if kind == "variables" and _has_variables(value):
        _assign(name, value, inside, saved)
        return value
    if kind == "state_dict" and _is_stateful(value):
        inner = _unwrapped(value)
        tensors = _Tensors(saved, inner)
        state = _decode(inside, tensors)
        tensors.on_gpus.finish()
        try:
            inner.load_state_dict(state)
        except RuntimeError as error:
            raise MismatchError(_differences(name, state, inner.state_dict()) or str(error)) from error
        return value
    if not _has_variables(value) and not _is_stateful(value):
        if kind == "pytree":
            return _unflatten(name, value, inside, saved)
        if kind == "plain":
            return _renew(value, inside, saved)
    raise MismatchError(
        f"{name} was saved as {_KINDS.get(kind, kind)} and is of type {type(value).__name__} now"
    )


def _differences(name: str, before: Any, now: Any) -> str:
    """The first few differences, and how many more: torch names every tensor, in four kilobytes."""
    found = [f"{key} is new" for key in now if key not in before]
    found += [f"{key} is gone" for key in before if key not in now]
    for key in [key for key in now if key in before]:
        was, is_now = (tuple(getattr(state[key], "shape", ())) for state in (before, now))
        if was != is_now:
            found.append(f"{key} had shape {was} and has {is_now} now")
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{name}: {'; '.join(found[:_SHOWN])}{more}" if found else ""


def _is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _has_variables(value: Any) -> bool:
    if isinstance(value, Variables):
        return True
    makers = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return bool(makers & {"keras", "tf_keras", "tensorflow"}) and (
        hasattr(value, "variables") or _is_variable(value)
    )


def _jax_leaves(value: Any) -> list[tuple[str, Any]] | None:
    """The leaves with their paths; None if none is a JAX array: JAX may be imported for other reasons."""
    jax = sys.modules.get("jax")
    found = [] if jax is None else _with_paths(jax, value)
    return found if any(isinstance(leaf, jax.Array) for _, leaf in found) else None  # type: ignore[union-attr]


def _with_paths(jax: Any, value: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(value)
    return [(".".join(map(_word, path)), leaf) for path, leaf in found]


def _word(key: Any) -> str:
    """A key of a path as text: JAX's keys of dicts, sequences and objects name it by different attributes."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "shape")  # Keras's optimizers have assign, too


def _variables(value: Any) -> list[Any]:
    """All variables of an object, or the object if it is one. In older optimizers `variables` is a method."""
    if _is_variable(value):
        return [value]
    return sharded_variables.joined(value.variables() if callable(value.variables) else value.variables)


def _unwrapped(value: Any) -> Any:
    """The user's own module: a checkpoint depends on neither the number of workers nor compilation."""
    while True:
        if hasattr(value, "_orig_mod"):
            value = value._orig_mod
        elif type(value).__name__ in ("DistributedDataParallel", "DataParallel"):
            value = value.module
        else:
            return value


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
                raise TypeError(f"{path} has the key {key!r}: keys must be strings or integers")
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[key, _encode(f"{path}.{key}", item, found)] for key, item in value.items()]}
    for kind, made_of in _SEQUENCES.items():
        if isinstance(value, made_of):
            return {kind: [_encode(f"{path}.{n}", item, found) for n, item in enumerate(value)]}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    numbers = f" of {value.dtype}" if hasattr(value, "dtype") else ""
    raise TypeError(f"{path} is a {kind}{numbers}, which cannot be saved")


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
    """Restore into the existing dicts, lists, arrays and variables: the program may hold other references
    to them."""
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
        made = [_renew(old_item, item, saved) for old_item, item in zip(before, inside)]
        if kind == "list":
            old[:] = made
            return old
        return type(old)(*made) if hasattr(old, "_fields") else tuple(made)
    return _decode(tree, _Arrays(saved))


class _Arrays:
    """Saved tensors as independent NumPy arrays."""

    def __init__(self, saved: Saved) -> None:
        self._saved = saved

    def get(self, name: str, path: tuple[Any, ...]) -> Any:
        return tensor_bytes.to_numpy(self._saved[name]).copy()


class _Tensors(_Arrays):
    """Saved tensors for a torch module or optimizer: spread over ranks if its own tensors are."""

    def __init__(self, saved: Saved, value: Any) -> None:
        super().__init__(saved)
        self.on_gpus = GpuRestore()
        groups = getattr(value, "param_groups", None)
        self._is_optimizer = groups is not None
        self._known: dict[tuple[Any, ...], Any]
        if groups is None:
            self._known = {(name,): tensor for name, tensor in value.state_dict().items()}
        else:
            params = [param for group in groups for param in group["params"]]
            self._known = {("state", number): param for number, param in enumerate(params)}

    def get(self, name: str, path: tuple[Any, ...]) -> Any:
        if "torch" not in sys.modules:  # the program's own class, with arrays
            return super().get(name, path)
        pieces = self._saved[name]
        like = self._known.get(path[:2] if self._is_optimizer else path)
        if pieces[0][0].whole is None and self._is_optimizer and like is not None:
            size = pieces[0][0].size
            like = like if tuple(like.shape) == size else None  # a step count is not spread
        tensor = tensor_bytes.to_torch(pieces, like)
        on_gpu = self.on_gpus.add(tensor, like, is_new=self._is_optimizer)
        if on_gpu is not None:
            return on_gpu
        # Without a copy, an optimizer would work on the pages of the file.
        return tensor.clone() if self._is_optimizer else tensor


def _assign(name: str, value: Any, trees: list[Tree], saved: Saved) -> None:
    variables = _variables(value)
    if len(trees) != len(variables):
        is_built = getattr(value, "built", getattr(value, "_built", not hasattr(value, "build")))
        hint = (
            "" if is_built else ": build it first, for example by optimizer.build(model.trainable_variables)"
        )
        raise MismatchError(f"{name} had {len(trees)} variables and has {len(variables)} now{hint}")
    for variable, tree in zip(variables, trees):
        array = tensor_bytes.to_numpy(saved[tree["tensor"]]).copy()  # TensorFlow may use the memory directly
        size = array.shape[
            len(array.shape) - len(variable.shape) :
        ]  # a metric has one value for each replica
        _compare(f"{name}: {getattr(variable, 'path', variable.name)}", size, variable.shape)
        tensor_bytes.assign(variable, array)


def _unflatten(name: str, value: Any, trees: list[tuple[str, Tree]], saved: Saved) -> Any:
    import jax

    before, shape = _with_paths(jax, value), jax.tree_util.tree_structure(value)
    if len(before) != len(trees):
        raise MismatchError(f"{name} had {len(trees)} leaves and has {len(before)} now")
    after = []
    for (now, old), (path, tree) in zip(before, trees):
        if now != path:
            raise MismatchError(f"{name} had the leaf {path} where it has {now} now")
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
        raise MismatchError(f"{what} had shape {tuple(before)} and has {tuple(now)} now")
