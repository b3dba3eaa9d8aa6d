"""Where a model comes from: the last reported step and scores, and the versions in use."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from oarlock.training.task import channel

_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
_FRAMEWORKS = {
    "saved_model": _TENSORFLOW,
    "torch_export": ("torch",),
    "jax_export": ("jax",),
    "onnx": ("onnx",),
    "python": (*_TENSORFLOW, "torch", "jax", "numpy"),
}
_PROGRESS = ("step", "total", "epoch")  # reported beside scores, but not scores


def step() -> int | None:
    """Return the number of steps that this program has reported; None if it reports none."""
    found = channel.newest().get("step")
    return None if found is None else int(found)


def scores() -> dict[str, Any]:
    """Return the newest value of every metric that this program has reported."""
    return plain({name: one for name, one in channel.newest().items() if name not in _PROGRESS})


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as numbers: scalars of any framework convert. Others are left out."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            found[str(name)] = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError, RuntimeError):  # text, or a device that has reused its memory
            continue
    return found


def frameworks(format_name: str) -> dict[str, str]:
    """Return the versions of what a model of this format needs, as far as this program has imported it."""
    names = _FRAMEWORKS[format_name]
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    return {name: version for name, version in found.items() if isinstance(version, str)}
