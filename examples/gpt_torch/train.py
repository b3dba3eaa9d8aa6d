"""Train a small GPT on documentation with PyTorch, on one worker or many, and let it write some.

    oarlock run examples/gpt_torch           two workers on this machine, as job.yaml says
    oarlock run -n 4 examples/gpt_torch      four
    python train.py                          one, with no launcher at all

Every step trains on the same 24 windows of text, split among the workers. State and position are saved
every few seconds: a dead worker, a machine that is taken away or Ctrl-C cost only the steps since then, and
the result is the same to the last bit.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sample
import text
import torch
import torch.distributed as dist
from model import GPT, SIZES, Config, exported, imported
from precision import HalfPrecision
from step import adamw, load_kernels, take_step
from torch.nn.parallel import DistributedDataParallel

import oarlock

GLOBAL_BATCH = 24  # windows of all workers together: 1, 2, 3, 4, 6, 8 and 12 of them share it equally


def main() -> None:
    args = arguments()
    config = shape(args)
    task = oarlock.current()  # this task; without a launcher, the only worker
    train, held_out, about = text.load_tokens(args.tokens) if args.tokens else text.load(args.data)
    batches = oarlock.data.Batches(text.count_windows(train, config.context), args.batch, seed=args.seed)
    say = print if task.is_chief else lambda *_: None
    say(about)

    device = my_device(args)
    if task.world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    windows = len(batches.mine(0))  # of this worker, in a step
    is_eager = device.type == "cuda" and not args.compile
    kernels = load_kernels(config, windows, device) if is_eager else []
    torch.manual_seed(args.seed)  # the same initial weights on every worker
    with device:  # created where it trains: a restart does not wait for the CPU's random numbers
        model = GPT(config)
    if args.fsdp and dist.is_initialized():
        shard(model, device)  # each worker keeps a part of the weights; before the optimizer sees them
    optimizer = adamw(model, args.lr, device)

    # Everything that must survive. If this run has saved a checkpoint, State restores it here.
    state = oarlock.State(model=model, optimizer=optimizer)
    say(f"{sum(weight.numel() for weight in model.parameters()):,} weights, from step {state.step}")

    # On a GPU a 16-bit copy computes, and the weights stay in 32 bits. FSDP has its own way to do that.
    half = HalfPrecision(model) if device.type == "cuda" and not args.fsdp else None
    trained = half.model if half else model
    for thread in kernels:
        thread.join()
    if dist.is_initialized() and not args.fsdp:
        trained = DistributedDataParallel(trained)  # averages the gradients of all workers
    if args.compile:
        trained = torch.compile(trained, options=compiler_options(config, device, args.deterministic))
        if half:
            from fused_loss import fused_loss  # needs Triton, which comes with torch for GPUs

            trained = partial(trained, loss=fused_loss)

    # What a step costs, so that Oarlock can show the speed and the share of the GPU in use.
    tokens = config.context * windows
    task.report(flops=config.operations * tokens, tokens_per_step=tokens)
    model.train()
    profiler = profiled(args.profile, say)
    for step in state.steps(args.steps, save=args.save, batches=batches):
        rows = on_device(text.windows(train, config.context, batches.mine(step)), device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        loss = mean_of_all(take_step(rows, model, optimizer, trained, half))
        state.report(loss=loss)  # sent when the GPU has it, a few times a second: no step waits for it
        profiler.step()
        if (step + 1) % args.show == 0:
            say(f"step {step + 1}: loss {loss:.4f}")

    stored = exported(model)  # on all workers: if the weights are sharded, each has a part of them
    if task.is_chief:
        finished = imported(stored).to(device)  # loaded as a server would: that is the one that counts
        loss = loss_of(finished, held_out, device)
        if args.tokens:  # only the owner of the file knows what these stand for
            task.model.mkdir(parents=True, exist_ok=True)
            torch.save(stored, task.model / "model.pt")
            print(f"loss {loss:.4f} on tokens it never saw, of the model in {task.model}")
        else:
            folder = publish(stored, loss)
            print(f"loss {loss:.4f} on text it never saw, of the model in {folder}")
            print(sample.write(sample.load(folder), seed=args.seed))


def publish(stored: dict[str, Any], loss: float) -> Path:
    """Write a version of the model for `oarlock serve`: the weights, and the code that reads them."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) / "model.pt"
        torch.save(stored, weights)
        version = oarlock.export(
            here / "predict.py",
            kind="completion",
            files=[here / "model.py", weights],
            scores={"held_out_loss": loss},
        )
    assert version  # None on all workers but the chief
    return version


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small GPT with PyTorch")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=GLOBAL_BATCH, help="windows in a step, of all workers")
    parser.add_argument("--lr", type=float, default=4e-3, help="after the warm-up; it falls to a tenth")
    parser.add_argument("--warmup", type=int, default=100, help="steps until that is reached")
    parser.add_argument(
        "--size",
        choices=["tiny", "124m", "774m"],
        default="tiny",
        help="of the network; the following change it",
    )
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--context", type=int, help="bytes it looks back: the size of a window")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--vocabulary", type=int, help="with --tokens; 50257 are those of GPT-2")
    parser.add_argument("--seed", type=int, default=oarlock.current().seed)
    parser.add_argument("--data", help="a text, by path or URL, instead of documentation")
    parser.add_argument("--tokens", help="a file of 16-bit token numbers, instead of a text")
    parser.add_argument("--save", type=how_often, default="10s", help="100 (steps), 30s or epoch")
    parser.add_argument("--show", type=int, default=100, help="print the loss every so many steps")
    parser.add_argument("--fsdp", action="store_true", help="share out the weights too, not only the text")
    parser.add_argument("--compile", action="store_true", help="with torch.compile; worth it on a GPU")
    parser.add_argument("--deterministic", action="store_true", help="the same bits on a GPU too; slower")
    parser.add_argument("--profile", metavar="FILE", help="write a trace of three steps to this file")
    return parser.parse_args()


def shape(args: argparse.Namespace) -> Config:
    """The network: the named size, except for what the arguments override."""
    names = ("layers", "width", "heads", "context", "dropout", "vocabulary")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.tokens:
        given.setdefault("vocabulary", 50_257)
    return replace(SIZES[args.size], **given)


def how_often(value: str) -> int | str:
    return int(value) if value.isdigit() else value


def my_device(args: argparse.Namespace) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")  # where the same sums always give the same result
    # cuDNN's attention is the fastest, but takes 0.1 s to plan: worth it for runs that compile as well.
    torch.backends.cuda.enable_cudnn_sdp(args.compile)
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def compiler_options(config: Config, device: torch.device, deterministic: bool) -> dict[str, int] | None:
    """For networks wider than 1,024, let the compiler try two kernels for each LayerNorm: 2% of a step."""
    if device.type != "cuda" or config.width <= 1024 or deterministic:
        return None
    # torch 2.11 cannot read its own note of the choice: a restart would fail. Choosing again takes no time.
    os.environ.setdefault("TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE", "1")
    return {"triton.multi_kernel": 1}


def shard(model: GPT, device: torch.device) -> None:
    from torch.distributed.fsdp import (
        MixedPrecisionPolicy,
        fully_shard,
    )  # takes half a second, so only if it is used

    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16) if device.type == "cuda" else MixedPrecisionPolicy()
    )
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def profiled(file: str | None, say: Callable[[str], None]) -> torch.profiler.profile | argparse.Namespace:
    """A profiler for the fifth to the seventh step; without a file, it does nothing."""
    if not file:
        return argparse.Namespace(step=lambda: None)

    def write(profile: torch.profiler.profile) -> None:
        profile.export_chrome_trace(file)
        say(f"a trace of three steps is in {file}: open it in ui.perfetto.dev")

    schedule = torch.profiler.schedule(wait=3, warmup=1, active=3, repeat=1)
    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=write)
    profiler.start()
    return profiler


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Linear up, cosine down: a function of the step, so there is no schedule to save."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def on_device(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copied as bytes, an eighth of the size of integers, while the GPU still computes the last step."""
    numbers = torch.from_numpy(rows.astype("int32") if rows.dtype == "uint16" else rows)
    if device.type == "cuda":
        numbers = numbers.pin_memory().to(device, non_blocking=True)
    return numbers.long()


def mean_of_all(loss: torch.Tensor) -> torch.Tensor:
    if dist.is_initialized():
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return loss


@torch.no_grad()
def loss_of(model: GPT, held_out: np.ndarray, device: torch.device) -> float:
    size = model.config.context
    numbers = range(text.count_windows(held_out, size))
    losses = [
        model(rows[:, :-1], rows[:, 1:]).item() * len(rows)
        for start in range(0, len(numbers), 64)
        for rows in [on_device(text.windows(held_out, size, numbers[start : start + 64]), device)]
    ]
    return sum(losses) / len(numbers)


if __name__ == "__main__":
    main()
