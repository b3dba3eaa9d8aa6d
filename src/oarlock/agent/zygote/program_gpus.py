"""Which GPUs a program has opened by itself, in a way that its next process may find them open.

`gpu_standby` opens them before the program starts again. A program must not notice that: it does not if it
opens them anyway, with the variables that it was given, and before it forks anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from oarlock.system.gpus import cuda_driver

LOADING = "CUDA_MODULE_LOADING"  # torch up to 2.9 sets it itself


def deciding(env: Mapping[str, str]) -> dict[str, str]:
    """Of these variables, those that decide which GPUs a process opens, and how the driver treats them."""
    return {name: value for name, value in env.items() if name.startswith("CUDA") or name == "LOCAL_RANK"}


def watch() -> Callable[[], tuple[int, ...]]:
    """Call it before the program starts. It returns what names the GPUs, as soon as the program has opened
    them."""
    given = deciding(os.environ)
    early_forks: list[bool] = []
    is_told = False

    def before_fork() -> None:
        # A child of a process without a context may open one; a child of one that has a context may not.
        if not is_told and not early_forks and not cuda_driver.contexts():
            early_forks.append(True)

    os.register_at_fork(before=before_fork)

    def opened() -> tuple[int, ...]:
        nonlocal is_told
        is_told, now = True, deciding(os.environ)
        if now.get(LOADING) == "LAZY" and LOADING not in given:
            del now[LOADING]
        # TensorFlow: nobody has tried yet how it takes to an open context.
        if early_forks or "tensorflow" in sys.modules or now != given:
            return ()
        return cuda_driver.contexts()

    return opened
