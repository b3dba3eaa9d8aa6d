"""What a save costs the training: `saving.py WAY --mib 512 --saves 5`, and a line of JSON with seconds.

Every step changes all of the state, as an optimizer does. A way is one of ours (`torch`, `fsdp`, `jax`,
`tensorflow`) or a peer's: `torch.save`, `dcp.async_save`, `numpy.save`, `tf.train.Checkpoint.write`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PIECES, _WIDTH = 16, 1024
_WINDOWS = 4


def main() -> None:
    given = _arguments()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["CHECKPOINT_DIR"] = f"{folder}/checkpoints"
        step, save, finish = _WAYS[given.way](given.mib << 20, Path(folder), given.device)
        for _ in range(3):
            step()
        print("READY", flush=True)
        told = (
            _of_rate(given.seconds, step, save, finish)
            if given.seconds
            else _of_stall(given, step, save, finish)
        )
        print(json.dumps(told), flush=True)


def _of_stall(
    given: Any, step: Callable[[], None], save: Callable[[], None], finish: Callable[[], None]
) -> Any:
    """How long a save stands still, the step after it, and how long until it is on the disk."""
    usual, stalls, after, behind = _timed(step), [], [], []
    save()  # the first one may be slower for everybody, and is told apart
    finish()
    for _ in range(given.saves):
        for _ in range(3):
            usual = min(usual, _timed(step))
        began = time.monotonic()
        stalls.append(_timed(save))
        after.append(_timed(step))
        finish()
        behind.append(time.monotonic() - began)
    return {"step": usual, "stalls": stalls, "after": after, "behind": behind}


def _of_rate(
    seconds: float, step: Callable[[], None], save: Callable[[], None], finish: Callable[[], None]
) -> Any:
    """Steps per second in windows that begin with a save, and in the same when it is long on the disk."""
    save()
    finish()
    rates: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(_WINDOWS):
        began = time.monotonic()
        save()
        first = _steps(step, began + seconds / 5)
        assert _timed(finish) < seconds / 100, "not yet on the disk"
        settled = time.monotonic()
        later = _steps(step, began + seconds)
        ended = time.monotonic()
        rates["with"].append((first + later) / (ended - began))
        rates["without"].append(later / (ended - settled))
    return rates


def _steps(step: Callable[[], None], until: float) -> int:
    count = 0
    while time.monotonic() < until:
        step()
        count += 1
    return count


def _timed(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def _torch_state(size: int, device: str) -> tuple[Any, Callable[[], None]]:
    import torch

    rows = size // _PIECES // 4 // _WIDTH
    pieces = torch.nn.ParameterList(
        [torch.nn.Parameter(torch.rand(rows, _WIDTH, device=device)) for _ in range(_PIECES)]
    )

    def step() -> None:
        with torch.no_grad():
            for piece in pieces:
                piece.mul_(0.999).add_(0.001)
        if device != "cpu":
            torch.cuda.current_stream().synchronize()  # as training does: a copy on another stream may go on

    return pieces, step


def _ours(things: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], None]]:
    from oarlock.training.saving.session import CheckpointSession

    checkpointing = CheckpointSession()
    steps = iter(range(1, 1_000_000))

    def save() -> None:
        assert checkpointing.save(next(steps), things, {}, None)

    return save, checkpointing.finish


def _ours_torch(size: int, folder: Path, device: str) -> Any:
    pieces, step = _torch_state(size, device)
    return step, *_ours({"pieces": pieces})


def _ours_fsdp(size: int, folder: Path, device: str) -> Any:
    """The same weights, sharded: the only rank has one part of one."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    pieces, step = _torch_state(size, device)
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    fully_shard(pieces)
    return step, *_ours({"pieces": pieces})


def _torch_save(size: int, folder: Path, device: str) -> Any:
    import torch

    pieces, step = _torch_state(size, device)

    def save() -> None:
        with (folder / "state.pt").open("wb") as file:
            torch.save(pieces.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())

    return step, save, lambda: None


def _dcp(size: int, folder: Path, device: str) -> Any:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    pieces, step = _torch_state(size, device)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    futures: list[Any] = []

    def save() -> None:
        futures[:] = [dcp.async_save(pieces.state_dict(), checkpoint_id=str(folder / "dcp"))]

    def finish() -> None:
        futures[0].result()

    return step, save, finish


def _jax_state(size: int) -> tuple[dict[str, Any], Callable[[], None]]:
    import jax

    count = size // _PIECES // 4
    key = jax.random.key(0)
    things = {"pieces": [jax.random.uniform(key, (count,)) for _ in range(_PIECES)]}
    # The old arrays are donated, as in training: they are gone after the step.
    change = jax.jit(lambda pieces: [piece * 0.999 + 0.001 for piece in pieces], donate_argnums=0)

    def step() -> None:
        things["pieces"] = change(things["pieces"])
        jax.block_until_ready(things["pieces"])

    return things, step


def _ours_jax(size: int, folder: Path, device: str) -> Any:
    things, step = _jax_state(size)
    return step, *_ours(things)


def _numpy_save(size: int, folder: Path, device: str) -> Any:
    import numpy as np

    things, step = _jax_state(size)

    def save() -> None:
        for number, piece in enumerate(things["pieces"]):
            with (folder / f"{number}.npy").open("wb") as file:
                np.save(file, np.asarray(piece))
                file.flush()
                os.fsync(file.fileno())

    return step, save, lambda: None


def _tensorflow_state(size: int) -> tuple[Any, Callable[[], None]]:
    import tensorflow as tf

    count = size // _PIECES // 4
    pieces = [tf.Variable(tf.random.uniform((count,))) for _ in range(_PIECES)]

    @tf.function
    def change() -> None:
        for piece in pieces:
            piece.assign(piece * 0.999 + 0.001)

    return pieces, change


def _ours_tensorflow(size: int, folder: Path, device: str) -> Any:
    pieces, step = _tensorflow_state(size)
    return step, *_ours({f"piece{number}": piece for number, piece in enumerate(pieces)})


def _tf_checkpoint(size: int, folder: Path, device: str) -> Any:
    import tensorflow as tf

    pieces, step = _tensorflow_state(size)
    checkpoint = tf.train.Checkpoint(pieces=pieces)
    return step, lambda: checkpoint.write(str(folder / "tf")), lambda: None


_WAYS: dict[str, Callable[[int, Path, str], Any]] = {
    "torch": _ours_torch,
    "fsdp": _ours_fsdp,
    "jax": _ours_jax,
    "numpy.save": _numpy_save,
    "torch.save": _torch_save,
    "dcp.async_save": _dcp,
    "tensorflow": _ours_tensorflow,
    "tf.train.Checkpoint.write": _tf_checkpoint,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=_WAYS)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.0, help="measure the rate, in windows so long")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
