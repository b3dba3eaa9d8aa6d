"""The image of a job that names none: the framework's own, in the version installed here.

Never a `latest`: nodes that pulled it on different days would make one gang of different frameworks.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import NamedTuple

from oarlock.job.model import Job, Role

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")
_NEWEST_TENSORFLOW = "2.21.0"  # if none is installed here
# PyTorch's tags have the version of CUDA, which does not follow from torch's. These are known to exist; the
# last one is for any other version.
_TORCH = {
    "2.4": "2.4.1-cuda12.4-cudnn9-runtime",
    "2.5": "2.5.1-cuda12.4-cudnn9-runtime",
    "2.6": "2.6.0-cuda12.6-cudnn9-runtime",
    "2.7": "2.7.1-cuda12.8-cudnn9-runtime",
    "2.8": "2.8.0-cuda12.9-cudnn9-runtime",
    "2.9": "2.9.0-cuda12.8-cudnn9-runtime",
}
# Packages of the default images, with all that they require; doubtful ones are left out.
_BRINGS = {
    "tensorflow": (
        *(*_TENSORFLOW, "absl-py", "grpcio", "h5py", "keras", "numpy", "packaging", "protobuf", "requests"),
        *("rich", "setuptools", "six", "tensorboard", "termcolor", "typing-extensions", "wheel", "wrapt"),
    ),
    "torch": (
        *("torch", "torchaudio", "torchvision", "filelock", "fsspec", "jinja2", "networkx", "numpy"),
        *("pillow", "pyyaml", "requests", "setuptools", "sympy", "tqdm", "triton", "typing-extensions"),
    ),
    "jax": ("jax", "jaxlib", "ml-dtypes", "numpy", "opt-einsum", "scipy"),
}


class Image(NamedTuple):
    """An image, with what has to be installed in it before the program runs."""

    name: str
    pip: tuple[str, ...] = ()  # packages that it lacks
    is_default: bool = False


def brings(framework: str) -> tuple[str, ...]:
    """The packages that a pod with the default image has: the image's, and those of `Image.pip`."""
    return ("pip", *_BRINGS.get(framework, ()))


def choose(job: Job, role: Role, framework: str) -> Image:
    """The image that the role or the job names; otherwise the default for the framework."""
    named = role.image or job.kubernetes.image
    return Image(named) if named else _default(framework, bool(role.gpu))._replace(is_default=True)


def _default(framework: str, with_gpu: bool) -> Image:
    if framework == "tensorflow":
        return Image(
            f"tensorflow/tensorflow:{installed(framework) or _NEWEST_TENSORFLOW}" + "-gpu" * with_gpu
        )
    if framework == "torch":
        series = (installed(framework) or "").rpartition(".")[0]
        return Image(f"pytorch/pytorch:{_TORCH.get(series, list(_TORCH.values())[-1])}")
    python = Image(f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    if framework == "jax":
        version = installed(framework)
        return python._replace(pip=("jax" + "[cuda12]" * with_gpu + (f"=={version}" if version else ""),))
    return python


def installed(framework: str) -> str | None:
    """The version on this machine, without the build (`+cpu`)."""
    for package in _TENSORFLOW if framework == "tensorflow" else (framework,):
        try:
            return metadata.version(package).partition("+")[0]
        except metadata.PackageNotFoundError:
            pass
    return None
