"""What a run on this machine opens to others: loopback, and nothing else where the framework allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import listeners
import pytest
from gangs import STEPS, Gang

TORCH = """
import torch, torch.distributed as dist
for _ in range(2):  # in one process, on one port
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == dist.get_world_size()
    if not _:
        dist.destroy_process_group()
"""
TORCH_BY_HAND = """
import torch, torch.distributed as dist
if me.rank == 0:
    own = dist.TCPStore("localhost", 0, 1, True)
    assert own.port
url = f"tcp://localhost:{os.environ['MASTER_PORT']}"
dist.init_process_group("gloo", init_method=url, rank=me.rank, world_size=me.world)
dist.barrier()
"""
JAX = """
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
assert multihost_utils.process_allgather(jnp.array([1.0])).sum() == 2
"""
JAX_BY_HAND = JAX.replace(
    "initialize()",
    "initialize(os.environ['OARLOCK_LEADER'].replace('127.0.0.1', 'localhost'), me.world, me.rank)",
)


@pytest.fixture(autouse=True)
def named_after_its_network() -> Iterator[None]:
    """Gloo listens where the name of the machine leads to: to the network on most."""
    address = listeners.outside()
    if os.geteuid() != 0 or address is None:
        yield
        return
    with listeners.host_named(address):
        yield


@pytest.mark.parametrize(
    ("program", "framework", "warm"),
    [
        (TORCH, "torch", True),
        (TORCH_BY_HAND, "torch", False),
        (JAX, "jax", True),
        (JAX_BY_HAND, "jax", False),
    ],
    ids=["torch", "torch-by-hand", "jax", "jax-by-hand"],
)
def test_a_run_listens_on_loopback_only(
    home: Path, tmp_path: Path, program: str, framework: str, warm: bool
) -> None:
    gang = Gang(tmp_path / "job", STEPS + program + "train(10**6)", framework=framework, warm=warm)
    for task in ("worker-0", "worker-1"):
        gang.until_step(1, task)
    found = listeners.of_tree(gang.state.agent or 0)
    assert len(found) >= 2, f"the agent's and the store's at least, not {found}"
    assert not [address for address in found if not listeners.is_loopback(address)], found
