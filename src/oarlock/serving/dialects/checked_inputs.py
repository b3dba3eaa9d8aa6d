"""Whether arrays fit the manifest: names, shapes, and the same number of rows in each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from oarlock.models.model_manifest import Manifest, Tensor
from oarlock.serving.dialects.exchange import Refused

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array

_MOST_NAMED = 8
_LONGEST = 80  # characters of a client's name in a message


def check_names(manifest: Manifest, given: Iterable[str]) -> None:
    """Raise Refused unless exactly the model's inputs are given."""
    names = set(given)
    expected = {one.name for one in manifest.inputs}
    if names == expected:
        return
    unknown, missing = sorted(names - expected), sorted(expected - names)
    parts = [f"the model has no input {shortened(unknown[0])}"] if unknown else []
    parts += [f"the input {missing[0]!r} is missing"] if missing else []
    raise Refused(400, f"{' and '.join(parts)}; it takes {described(manifest.inputs)}")


def check_shape(tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise Refused if an array of this shape does not fit."""
    expected = tensor.shape
    fits = len(shape) == len(expected)
    for want, size in zip(expected, shape):
        fits = fits and want in (None, size)
    if not fits:
        raise Refused(
            400, f"{tensor.name!r} has the shape {list(shape)}, and the model takes {_sizes(tensor)}"
        )
    if 0 in shape and 0 not in expected:
        raise Refused(400, f"{tensor.name!r} is empty: its shape is {list(shape)}")


def check_rows(manifest: Manifest, arrays: Mapping[str, Array]) -> None:
    """Raise Refused if the inputs have different numbers of rows."""
    if len(arrays) < 2 or not manifest.is_batched:
        return
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name!r} {count}" for name, count in rows.items())
        raise Refused(400, f"the inputs have different numbers of rows: {counts}")


def described(tensors: Iterable[Tensor]) -> str:
    """Name inputs or outputs in a message, with types and shapes."""
    named = [f"{one.name!r} ({one.dtype} {_sizes(one)})" for one in tensors]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "") if named else "nothing"


def shortened(name: object) -> str:
    """A client's word, shortened for a message."""
    text = repr(name)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _sizes(tensor: Tensor) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in tensor.shape) + "]"
