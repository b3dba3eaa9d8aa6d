"""What was compiled stays compiled: the next generation finds it, and so does the next run."""

from __future__ import annotations

from pathlib import Path

from tests.support.gangs import Gang

PROGRAM = """
import os, signal, jax, jax.numpy as jnp, oarlock
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))

@jax.jit
@jax.grad
def step(x):  # takes milliseconds to compile
    return (x @ x.T).sum()

step(jnp.ones((64, 64))).block_until_ready()
print("found" if "/jax/compilation_cache/cache_hits" in hits else "compiled", flush=True)
if oarlock.current().generation == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_restart_and_the_next_run_find_what_jax_compiled(home: Path, tmp_path: Path) -> None:
    for first in ("compiled", "found"):
        gang = Gang(tmp_path / "job", PROGRAM, roles={"worker": 1})
        assert gang.end().state == "succeeded", gang.told()
        assert gang.lines == [f"worker-0| {first}", "worker-0| found"]
    assert list((home / "cache" / "jax").iterdir())
