"""The names of the GPUs that this process computes on, as reported by the framework it has imported.

Queries only what is already initialized, and nothing that waits for a device.
"""

from __future__ import annotations

import sys
from typing import Any


def in_use() -> list[str]:
    """Return the name of each GPU in use; none for a process on CPUs."""
    for module, names in (("torch", _torch), ("jax", _jax), ("tensorflow", _tensorflow)):
        framework = sys.modules.get(module)
        try:
            found = [] if framework is None else names(framework)
        except Exception:  # another version, or half imported: only a figure is missing
            found = []
        if found:
            return found
    return []


def _torch(torch: Any) -> list[str]:
    """The GPUs on which torch has memory: a process also sees GPUs that others use."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return []
    used = [number for number in range(cuda.device_count()) if cuda.memory_reserved(number)]
    return [cuda.get_device_name(number) for number in used]


def _jax(jax: Any) -> list[str]:
    from jax._src import xla_bridge

    if not xla_bridge.backends_are_initialized():
        return []
    return [str(device.device_kind) for device in jax.local_devices() if device.platform in ("gpu", "cuda")]


def _tensorflow(tensorflow: Any) -> list[str]:
    config = tensorflow.config
    details = config.experimental.get_device_details
    devices = config.get_visible_devices("GPU")
    return [str(details(device).get("device_name", "")) for device in devices]
