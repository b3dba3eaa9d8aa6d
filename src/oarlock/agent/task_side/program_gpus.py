"""Which GPUs a program has opened itself, and its next process may find open.

`gpu_standby` opens them before the program restarts. The program must not notice that. It does not if it
opens them anyway, with the variables that it was given, and before it forks anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from oarlock.system.gpus import cuda_driver

_OTHERS = ("LOCAL_RANK", "NVIDIA_TF32_OVERRIDE")  # cuBLAS reads the second
LOADING = "CUDA_MODULE_LOADING"  # torch sets it itself up to 2.9


def deciding(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide which GPUs a process opens, and how the driver and cuBLAS treat them."""
    return {name: value for name, value in env.items() if name.startswith("CUDA") or name in _OTHERS}


def watch() -> Callable[[], tuple[int, ...]]:
    """Start to watch, before the program starts. The returned function names the GPUs once the program has
    opened them."""
    given, were_open = deciding(os.environ), cuda_driver.contexts()
    early_forks: list[bool] = []
    is_reported = False

    def in_use() -> tuple[int, ...]:
        # Only the program's framework knows whether it uses a GPU that was open before.
        if not were_open or _has_started_framework():
            return cuda_driver.contexts()
        return tuple(number for number in cuda_driver.contexts() if number not in were_open)

    def before_fork() -> None:
        # A child of a process without a context may open one; a child of a process with a context may not.
        if not is_reported and not early_forks and not in_use():
            early_forks.append(True)

    os.register_at_fork(before=before_fork)

    def opened() -> tuple[int, ...]:
        nonlocal is_reported
        is_reported, now = True, deciding(os.environ)
        if now.get(LOADING) == "LAZY" and LOADING not in given:
            del now[LOADING]
        # How TensorFlow handles a context that is already open is untested.
        if early_forks or "tensorflow" in sys.modules or now != given:
            return ()
        return in_use()

    return opened


def _has_started_framework() -> bool:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax._src.xla_bridge")
    if torch is not None and torch.cuda.is_initialized():
        return True
    return jax is not None and any(name != "cpu" for name in getattr(jax, "_backends", ()))
