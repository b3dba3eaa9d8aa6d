"""The framework that a program trains with, and the modules to import before forking its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from oarlock.job.model import Job
from oarlock.program.imports import Imports, scan

# Imports that decide, by the first part of the name. Keras stands for its backend.
_DECIDES = {
    "tensorflow": "tensorflow",
    "tf_keras": "tensorflow",
    "torch": "torch",
    **dict.fromkeys(("jax", "flax", "optax", "orbax", "equinox", "haiku"), "jax"),
}
# Imports that only hint: they work with more than one framework, or only handle data.
_HINTS = {
    **dict.fromkeys(("lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed"), "torch"),
    **dict.fromkeys(("torchvision", "torchaudio", "torchtext", "timm"), "torch"),
    **dict.fromkeys(("tensorflow_datasets", "tensorflow_hub", "tensorflow_text"), "tensorflow"),
}
_DISTRIBUTED = {
    "tensorflow": ("tensorflow.distribute",),
    "torch": ("torch.distributed", "torch.nn.parallel"),
    "jax": ("jax.distributed",),
}


def framework_of(job: Job, folder: Path) -> str:
    """The job's framework: the one it names or, for `auto`, the one that its program's imports show."""
    if job.framework != "auto":
        return job.framework
    return detect(folder, *python_of(job), job.env)


def python_of(job: Job) -> tuple[str | None, str | None]:
    """The program or the module that a job runs; a command may run one too."""
    if job.command and job.command[0].rpartition("/")[2].startswith("python"):
        words = [*job.command[1:], "", ""]
        return (None, words[1]) if words[0] == "-m" else (words[0], None)
    return job.program, job.module


def detect(
    folder: Path, program: str | None, module: str | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Detect the framework of a program or module: `tensorflow`, `torch`, `jax` or `none`."""
    return decide(scan(folder, program, module), env or {})


def decide(imports: Imports, env: Mapping[str, str]) -> str:
    """Pick the framework that the imports show.

    If there are several: the one that the job names as Keras's backend, otherwise the one whose distribution
    API the program uses (a PyTorch program may read data with TensorFlow), otherwise the first import.
    """
    backend = env.get("KERAS_BACKEND") or imports.keras_backend or "tensorflow"
    keras = backend if backend in _DISTRIBUTED else "none"
    decides = {**_DECIDES, "keras": keras, "keras_hub": keras, "keras_cv": keras}
    firsts = [name.partition(".")[0] for name in imports.modules]
    if any(name == "oarlock.keras" for name in imports.names):
        firsts.append("keras")
    if env.get("KERAS_BACKEND") and "keras" in firsts and keras != "none":
        return keras  # a program for any backend, whatever else it imports for one of them
    met = list(dict.fromkeys(decides[name] for name in firsts if name in decides))
    distributing = [framework for framework in met if _distributes(framework, imports.names)]
    hinted = [_HINTS[name] for name in firsts if name in _HINTS]
    return next(iter([*distributing, *met, *hinted]), "none")


def _distributes(framework: str, names: Iterable[str]) -> bool:
    prefixes = _DISTRIBUTED.get(framework, ())
    return any(name == prefix or name.startswith(f"{prefix}.") for name in names for prefix in prefixes)


def preimports(framework: str, imported: Iterable[str] = (), alone: bool = False) -> list[str]:
    """List what the zygote imports before it forks: the framework, and what a first step imports lazily.

    `imported` is `Imports.modules` of the program. A program that trains `alone` needs less. The
    framework's modules are known to start neither CUDA nor a JAX backend. The zygote skips a module that is
    not installed.
    """
    if framework not in _LAZILY:
        return []
    imported = list(imported)
    used = {name.partition(".")[0] for name in imported}
    lazily = _LAZILY_BY_SEVERAL if alone else ()
    wanted = [framework, *(name for name in _LAZILY[framework] if name not in lazily), *sorted(used & _SAFE)]
    wanted += [_HEART.get(name, name) for name in sorted(used & _LIBRARIES[framework])]
    if framework == "torch" and any(_TRAINER.fullmatch(name) for name in imported):
        wanted.append("transformers.trainer")
    if framework == "tensorflow" and "tf_keras" in used:
        wanted[1:2] = ["keras", "tf_keras"] if "keras" in used else ["tf_keras"]
    return wanted


_LAZILY = {
    "tensorflow": ("keras",),
    # DDP() imports it: with it the first step takes 0.01 s, without it 1.3 s (torch 2.13, two cores). A lone
    # trainer imports it only if it compiles (`training/frameworks/eager_torch`).
    "torch": ("torch._dynamo",),
    # Nothing else is worth it: the first sharded step imports eight more modules, 10 ms in all (JAX 0.10).
    "jax": ("jax.numpy",),
}
_LAZILY_BY_SEVERAL = ("torch._dynamo",)
# Small, used by most programs, and known to start no thread that a fork would lose.
_SAFE = frozenset(("numpy",))
# The zygote checks closely what these do when they are imported, and skips those that are not safe.
_LIBRARIES = {
    "tensorflow": frozenset(("datasets",)),
    "torch": frozenset(("accelerate", "datasets", "lightning", "pytorch_lightning", "transformers")),
    "jax": frozenset(("datasets", "flax", "optax", "orbax")),
}
_HEART = {"orbax": "orbax.checkpoint"}  # the module that takes the time; `orbax` itself is empty
# `import transformers` imports almost nothing: its names do, when they are used.
_TRAINER = re.compile(r"transformers\.(?:\w*Trainer|\w*TrainingArguments|trainer\b.*)")
