"""What a run on this machine opens to others: loopback, and nothing else where the framework allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.system import private_network
from tests.support import listeners
from tests.support.gangs import STEPS, Gang
from tests.support.soaking import cases
from tests.support.strangers import as_nobody, is_denied

TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total == dist.get_world_size()
if me.rank == 0:  # another one in this process shares the server
    port = int(os.environ["MASTER_PORT"])
    again = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    again.set("key", "value")
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
    cases(
        [
            pytest.param(TORCH, "torch", True, id="torch"),
            pytest.param(JAX_BY_HAND, "jax", False, id="jax-by-hand"),
        ],
        soak=[
            pytest.param(TORCH_BY_HAND, "torch", False, id="torch-by-hand"),
            pytest.param(JAX, "jax", True, id="jax"),
        ],
    ),
)
def test_a_run_listens_on_loopback_only(
    home: Path, tmp_path: Path, program: str, framework: str, warm: bool
) -> None:
    gang = Gang(tmp_path / "job", STEPS + program + "train(10**6)", framework=framework, warm=warm)
    for task in ("worker-0", "worker-1"):
        gang.until_step(1, task)
    agent = gang.state.agent or 0
    found = listeners.of_tree(agent)
    assert len(found) >= 2, f"the agent's and the store's at least, not {found}"
    assert not [address for address in found if not listeners.is_loopback(address)]
    if os.geteuid() == 0:
        inodes, names = listeners.inodes(agent), listeners.unix_of_tree(agent)
        with as_nobody(
            lambda: listeners.everybody_sees(inodes) == found and all(map(is_denied, names))
        ) as ended:
            assert ended() == 0, f"another user sees or reaches more than {found} and {names}"


TENSORFLOW = """
import json, os, tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
tf.distribute.Server(config["cluster"], config["task"]["type"], config["task"]["index"])
"""


def test_tensorflow_is_open_but_for_a_private_network(home: Path, tmp_path: Path) -> None:
    """The day its server listens on loopback, the docs and `doctor` have one warning less to give."""
    if private_network.refusal() is not None:
        pytest.skip("this machine does not allow network: private")
    program = TENSORFLOW + STEPS + "train(10**6)"
    gang = Gang(tmp_path / "job", program, roles={"worker": 1}, network="private").until_step(1)
    [address] = listeners.of_tree(gang.pid("worker-0"))
    assert not listeners.is_loopback(address)
    port = int(address.rpartition(":")[2])
    assert all(is_denied((host, port)) for host in ("127.0.0.1", listeners.outside()) if host)
