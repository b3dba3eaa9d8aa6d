"""Programs as their authors publish them: where each comes from, how it is run, what its steps look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Repository:
    """On GitHub, at one commit."""

    name: str
    commit: str
    folder: str = ""  # where the program is run; "": the repository's own


@dataclass(frozen=True)
class Packages:
    """On PyPI; none if .venv has what the program needs. The program is in them, or in soak/programs: a few
    lines around a library that publishes none."""

    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """One of them. `step` finds the line that says that a step is done, and its number if it has one."""

    name: str
    source: Repository | Packages
    words: tuple[str, ...]  # what follows `oarlock run -n N` and `torchrun --nproc_per_node N`
    step: str
    workers: int = 2
    kill_at: int = 0  # the step after which a worker is killed
    has_peer: bool = True  # torchrun starts it too
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()  # a Python program of the author's to run first
    needs: tuple[str, ...] = ()  # PyPI, beside what is in .venv


_KUBEFLOW = ("kubeflow/trainer", "3a3a1da8d5287f9f96e1b2d3be6a4b6ad756566d")  # release-1.9
_EXAMPLES = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
_LIGHTNING = ("lightning==2.6.6", "torchmetrics==1.9.0", "lightning-utilities==0.15.3")
_TRANSFORMERS = ("transformers==5.22.2", "tokenizers==0.23.3", "regex==2026.11.9")
_ON_CPU = {"ACCELERATE_USE_CPU": "true"}  # as `accelerate launch --cpu` sets it; else each worker is alone


def accelerate(script: str, step: str, kill_at: int = 0) -> Program:
    """A program of accelerate's own, out of its package."""
    words = ("-m", f"accelerate.test_utils.scripts.{script}")
    return Program(f"accelerate {script}", Packages(), words, step, kill_at=kill_at, environment=_ON_CPU)


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


# In `make test`, too: nothing has to be fetched.
INSTALLED = (
    accelerate("test_script", r"\*\*Initialization\*\*"),
    accelerate("test_sync", r"\*\*Test `accumulate`"),
    accelerate("test_ops", r"testing gather$"),
)
FETCHED = (
    Program(
        "lightning BoringModel",
        Packages(_LIGHTNING),
        ("lightning_boring.py", "checkpoints", "4"),
        r"step (\d+)",
        kill_at=45,
    ),
    Program(
        "transformers Trainer",
        Packages(_TRANSFORMERS),
        ("transformers_tiny.py", "checkpoints", "40"),
        r"step (\d+)",
        kill_at=25,
    ),
    Program(
        "kubeflow pytorch/cpu-demo",
        Repository(*_KUBEFLOW, "examples/pytorch/cpu-demo"),
        ("demo.py",),
        r"result tensor",
    ),
    Program(
        "kubeflow pytorch/smoke-dist",
        Repository(*_KUBEFLOW, "examples/pytorch/smoke-dist"),
        ("dist_sendrecv.py",),
        r"Result from worker",
    ),
    Program(
        "kubeflow pytorch/elastic/echo",
        Repository(*_KUBEFLOW, "examples/pytorch/elastic/echo"),
        ("echo.py",),
        r"after init process group",
    ),
    Program(
        "kubeflow jax/cpu-demo",
        Repository(*_KUBEFLOW, "examples/jax/cpu-demo"),
        ("train.py",),
        r"\[2\.\]",
        has_peer=False,
    ),
    Program(
        "kubeflow tensorflow/tf_sample",
        Repository(*_KUBEFLOW, "examples/tensorflow/tf_sample"),
        ("tf_smoke.py",),
        r"Summed result",
        has_peer=False,
        needs=("retrying==1.4.2",),
    ),
    Program(
        "karpathy makemore",
        Repository("karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4"),
        _words("makemore.py --max-steps 200 --num-workers 1 --n-layer 1 --n-embd 16"),
        r"step (\d+) \|",
        workers=1,
        kill_at=100,
    ),
    Program(
        "karpathy minGPT adder",
        Repository("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26"),
        _words("projects/adder/adder.py --trainer.max_iters=200 --trainer.num_workers=0"),
        r"iter (\d+): train loss",
        workers=1,
        kill_at=100,
        environment={"PYTHONPATH": "."},  # instead of `pip install -e .`
    ),
    Program(
        "pytorch/examples rpc/rnn",
        Repository(*_EXAMPLES, "distributed/rpc/rnn"),
        ("main.py",),
        r"Training epoch (\d+)",
        workers=1,
        kill_at=4,
        has_peer=False,  # it hangs under torchrun
    ),
)
_SHAKESPEARE = (
    "train.py config/train_shakespeare_char.py --compile=False --eval_iters=1 --block_size=32 --batch_size=4 "
    "--n_layer=2 --n_head=2 --n_embd=32 --max_iters=200 --eval_interval=50 --log_interval=1"
)
# These take a CUDA device as soon as there is a rank, whatever started them.
ON_GPUS = (
    Program(
        "karpathy nanoGPT",
        Repository("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291"),
        _words(_SHAKESPEARE),
        r"iter (\d+):",
        workers=1,
        kill_at=100,
        prepare=("data/shakespeare_char/prepare.py",),
    ),
    *(
        Program(
            f"pytorch/examples {name}",
            Repository(*_EXAMPLES, f"distributed/{name}"),
            words,
            step,
            kill_at=kill_at,
        )
        for name, words, step, kill_at in (
            ("ddp", ("example.py",), r"training completed", 0),
            ("FSDP2", ("example.py",), r"\(output\): Linear", 0),
            ("tensor_parallelism", ("tensor_parallel_example.py",), r"iter (\d+) completed", 4),
            ("ddp-tutorial-series", ("multigpu_torchrun.py", "40", "5"), r"Epoch (\d+)", 20),
        )
    ),
)
