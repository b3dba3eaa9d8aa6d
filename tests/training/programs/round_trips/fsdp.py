"""State that is spread over ranks: each writes its part, and any number of ranks puts it together again."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo  # the first step of an optimizer imports it: once here, not in each of twenty ranks
from round_trip import go_through
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from oarlock.checkpoints.store import Store
from oarlock.training.saving.session import CheckpointSession

FOLDER = Path(tempfile.mkdtemp(dir=sys.argv[1]))


def net(seed):
    """Seven, three and one rows: nothing divides evenly by two or four, and some ranks get nothing."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3), nn.Linear(3, 1))
    made[0].extra = nn.Parameter(torch.randn(6, 2, 2))
    made[4].to(torch.bfloat16)
    return made


def make(world, seed=0, is_spread=True):
    model = net(seed)
    if is_spread:
        mesh = dist.init_device_mesh("cpu", (world,))
        for layer in (model[0], model[3]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 0.01)}


def train(model, optimizer, steps=3):
    """With the same gradients everywhere: what differs comes from saving and restoring."""
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.sin(parameter.detach() * 10)
        optimizer.step()


def whole(value):
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.detach().float().tolist() if isinstance(value, torch.Tensor) else value


def numbers(things):
    return {name: whole(thing.state_dict()) for name, thing in things.items()}


def gang(world, work, generation=1, folder=FOLDER):
    """`work(rank, world)` in processes of their own; what each returns."""
    results = Path(tempfile.mkdtemp(dir=sys.argv[1]))
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            try:
                told = {"RUN": "job", "RANK": rank, "WORLD": world, "GENERATION": generation}
                os.environ.update({f"OARLOCK_{name}": str(value) for name, value in told.items()})
                os.environ["CHECKPOINT_DIR"] = str(folder)
                torch.set_num_threads(1)
                store = dist.FileStore(str(results / "store"), world)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
                (results / f"{rank}").write_bytes(pickle.dumps(work(rank, world)))
                dist.barrier()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * world
    return [pickle.loads((results / f"{rank}").read_bytes()) for rank in range(world)]


def together():
    """As after the first step of a real program: no rank is so far ahead that rank 0 cleans its part away."""
    made = CheckpointSession()
    dist.barrier()
    return made


def saved_by(world, is_spread=True, folder=FOLDER):
    def work(rank, world):
        things = make(world, seed=1, is_spread=is_spread)
        train(**things)
        checkpointing = together()
        assert checkpointing.save(3, things, {}, None)
        checkpointing.finish(60)
        assert checkpointing.step == 3
        checkpointing.close()
        return numbers(things)

    first, *others = gang(world, work, folder=folder)
    assert all(one == first for one in others)
    return first


def restored_by(world, is_spread=True, folder=FOLDER):
    """What there is then, and what two more steps make of it."""

    def work(rank, world):
        things = make(world, seed=2, is_spread=is_spread)
        checkpointing = CheckpointSession()
        checkpointing.restore(things)
        assert checkpointing.step == 3
        found = numbers(things)
        train(**things, steps=2)
        return found, numbers(things)

    first, *others = gang(world, work, generation=2, folder=folder)
    assert all(one == first for one in others)
    return first


def case_two_ranks_save_and_any_number_goes_on():
    before = saved_by(2)
    assert sorted(path.name for path in FOLDER.glob("step-*/*")) == [
        "manifest.json",
        "state-0-of-2.safetensors",
        "state-1-of-2.safetensors",
    ]
    assert not list(FOLDER.glob("step-*/.*"))
    one, later = restored_by(1, is_spread=False)
    assert one == before != later
    for world in (1, 2, 4):
        assert restored_by(world) == (before, later), world


def case_saved_by_one_alone_and_restored_spread():
    folder = FOLDER / "alone"
    before = saved_by(1, is_spread=False, folder=folder)
    assert [path.name for path in folder.glob("step-*/*.safetensors")] == ["state.safetensors"]
    assert restored_by(2, folder=folder)[0] == before


def case_a_part_that_is_missing_or_torn_makes_it_torn():
    store = Store(shutil.copytree(FOLDER, FOLDER.with_name("torn")))
    part = next(store.folder.glob("step-*/state-1-of-2.safetensors"))
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    newest, (why,) = store.newest()
    assert newest is None
    assert why.endswith("state-1-of-2.safetensors has changed since it was written"), why
    part.unlink()
    assert store.newest()[1][0].endswith("state-1-of-2.safetensors is missing")


def case_any_ranks_writer_killed_is_replaced():
    folder = FOLDER / "killed"
    folder.mkdir()

    def work(rank, world):
        things = make(world, seed=1)
        train(**things)
        checkpointing = together()
        for step in range(1, 7):
            assert checkpointing.save(step, things, {}, None)
            if step % world == rank:
                until = time.monotonic() + step * 0.004
                while time.monotonic() < until:
                    time.sleep(0.001)
                checkpointing._writer._process.send_signal(signal.SIGKILL)
            checkpointing.finish(30)
            assert not checkpointing.is_busy, step
            assert checkpointing.step == step, "it was made good"
            dist.barrier()
            if rank == 0:
                newest, complaints = Store(folder).newest()
                assert (newest.step, complaints) == (step, [])
            dist.barrier()
        checkpointing.close()

    gang(2, work, folder=folder)


def case_a_rank_that_cannot_write_lets_nobody_wait():
    folder = FOLDER / "full"

    def work(rank, world):
        things = make(world, seed=1)
        train(**things)
        checkpointing = together()
        if rank == 1:  # a folder where its file should be
            (folder / ".saving-step-0000000001-g1" / "state-1-of-2.safetensors").mkdir(parents=True)
        dist.barrier()
        assert checkpointing.save(1, things, {}, None)
        checkpointing.finish(3600)  # longer than a test may take
        assert checkpointing.step == -1
        dist.barrier()
        assert checkpointing.save(2, things, {}, None)
        checkpointing.finish(60)
        assert checkpointing.step == 2
        dist.barrier()
        assert [one.step for one in Store(folder).checkpoints()] == [2]
        checkpointing.close()

    gang(2, work, folder=folder)


if __name__ == "__main__":
    go_through(globals())
