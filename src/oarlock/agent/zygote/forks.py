"""What all forks of a zygote have in common, be they tasks, standbys or the zygotes of other runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the agent decides when tasks end


@contextmanager
def about_to_fork() -> Iterator[None]:
    """Nothing is written twice, and no signal gets lost: the child ignores them, as this process does, until
    it has settled. Blocked, an early stop waits; else the task is killed only after its whole grace."""
    sys.stdout.flush()
    sys.stderr.flush()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def enter_environment(env: Mapping[str, str]) -> None:
    """Replace the environment of the run for which this process was forked by that of another."""
    os.environ.clear()
    os.environ.update(env)
    jax = sys.modules.get("jax")
    if jax is not None:  # it read this variable for the other run
        jax.config.update("jax_compilation_cache_dir", env.get("JAX_COMPILATION_CACHE_DIR"))
