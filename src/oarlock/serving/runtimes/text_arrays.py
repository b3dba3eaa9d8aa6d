"""Text in arrays: str objects for us, UTF-8 bytes for a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock.serving.runtimes.runtime import Array


def encoded(array: Array) -> Array:
    """Bytes objects from str objects; bytes stay."""
    import numpy as np

    flat = [one.encode() if isinstance(one, str) else one for one in array.ravel().tolist()]
    return _shaped(np.array(flat, dtype=object), array.shape)


def decoded(array: Array) -> Array:
    """Str objects; bytes that are not UTF-8 are replaced."""
    import numpy as np

    array = np.asarray(array, dtype=object)
    flat = [
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
        for one in array.ravel().tolist()
    ]
    return _shaped(np.array(flat, dtype=object), array.shape)


def _shaped(flat: Array, shape: tuple[int, ...]) -> Array:
    return flat.reshape(shape)
