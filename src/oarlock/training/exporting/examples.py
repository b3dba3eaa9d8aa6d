"""Example inputs: which argument each belongs to, and what they say about shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oarlock.models.model_manifest import Tensor
from oarlock.models.model_versions import EXAMPLE
from oarlock.training.exporting.written_model import ExportError, tensor

_KEPT_ROWS = 8
_KEPT_BYTES = 1 << 20
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def named(example: Any, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the example by the names of the function's arguments. Raises ExportError."""
    if example is None:
        raise ExportError("pass example=: a small batch of inputs, so that shapes and types are known")
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind not in _VARIADIC]
    if isinstance(example, Mapping):
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        unknown = [str(name) for name in example if name not in names]
        if unknown and not takes_any:
            raise ExportError(f"example has {unknown[0]!r}, and the model takes {', '.join(names)}")
        return {str(name): value for name, value in example.items()}
    given = list(example) if isinstance(example, (tuple, list)) else [example]
    if len(given) > len(names):
        raise ExportError(
            f"example has {len(given)} inputs, and the model takes {len(names)}: pass a dict by name"
        )
    return dict(zip(names, given))


def check_rows(arrays: Mapping[str, Any]) -> int:
    """Return the number of examples in a batch of inputs. Raises ExportError."""
    sizes = {int(array.shape[0]) if len(array.shape) else 0 for array in arrays.values()}
    if len(sizes) != 1 or 0 in sizes:
        found = ", ".join(f"{name}: {tuple(array.shape)}" for name, array in arrays.items())
        raise ExportError(
            f"example: the first dimension of each input counts the examples; found {found or 'none'}"
        )
    return sizes.pop()


def by_name(outputs: Any) -> dict[str, Any]:
    """Return a model's outputs by name: those of a dict, or output_0, output_1 and so on."""
    if isinstance(outputs, Mapping):
        return {str(name): one for name, one in outputs.items() if one is not None}
    several = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return {f"output_{place}": one for place, one in enumerate(several) if one is not None}


def described(name: str, dtype: str, shapes: Sequence[Sequence[int]]) -> Tensor:
    """Describe an array by its shapes in calls with different numbers of examples."""
    if len({len(shape) for shape in shapes}) > 1:
        raise ExportError(f"{name!r} has another number of dimensions for another number of examples")
    sizes = tuple(found[0] if len(set(found)) == 1 else None for found in zip(*shapes))
    return tensor(name, dtype, sizes)


def store(folder: Path, inputs: Mapping[str, Any]) -> None:
    """Store a few examples with the model, so that a server can try it with realistic inputs."""
    import numpy as np

    arrays = {name: np.asarray(one)[:_KEPT_ROWS] for name, one in inputs.items()}
    arrays = {name: one.astype(str) if one.dtype == object else one for name, one in arrays.items()}
    if arrays and sum(one.nbytes for one in arrays.values()) <= _KEPT_BYTES:
        np.savez_compressed(folder / EXAMPLE, allow_pickle=False, **arrays)
