"""Which image a job's pods run, where it names none: the framework's own, in the version used here."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import NamedTuple

from oarlock.job import Job, Role

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")


class Image(NamedTuple):
    name: str
    pip: tuple[str, ...] = ()  # what it lacks


def choose(job: Job, role: Role, framework: str) -> Image:
    named = role.image or job.kubernetes.image
    return Image(named) if named else _default(framework, with_gpu=role.gpu > 0)


def _default(framework: str, with_gpu: bool) -> Image:
    if framework == "tensorflow":
        return Image(f"tensorflow/tensorflow:{_version(_TENSORFLOW) or 'latest'}" + "-gpu" * with_gpu)
    if framework == "torch":
        return Image("pytorch/pytorch:latest")  # its other tags carry the version of CUDA
    python = Image(f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    if framework == "jax":
        version = _version(("jax",))
        return python._replace(pip=("jax" + "[cuda12]" * with_gpu + (f"=={version}" if version else ""),))
    return python


def _version(packages: Iterable[str]) -> str | None:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return None
