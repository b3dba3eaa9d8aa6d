"""The GPUs of this machine, found without a framework: importing one takes seconds and memory on the GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from oarlock.run.gpu_facts.gpu_view import CUDA, HIP, ROCR

_PATIENCE = 30.0  # seconds for nvidia-smi, which starts a driver that sleeps
_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: (\S+)\)")
_SLICE = re.compile(r"\s+(MIG .+?)\s+Device\s+\d+: \(UUID: (\S+)\)")


@dataclass(frozen=True)
class Gpu:
    """One GPU, or a MIG slice of one."""

    id: str  # as the variable names it: 0, or MIG-...
    name: str
    key: str  # the same however a variable names it


@dataclass(frozen=True)
class Devices:
    """The GPUs of this machine, and those that the user's own variables leave."""

    make: str = ""  # nvidia, amd; empty: there are none
    all: tuple[Gpu, ...] = ()
    visible: tuple[Gpu, ...] = ()
    limited_by: str = ""  # the variable that hides some of them

    def called(self, word: str) -> Gpu | None:
        """The GPU that a word in a variable names: by its number, or by the beginning of its UUID."""
        is_long = len(word) > len("GPU-")
        return next(
            (gpu for gpu in self.all if gpu.id == word or (is_long and gpu.key.startswith(word))), None
        )


def find(env: Mapping[str, str], root: Path = Path("/")) -> Devices:
    """The GPUs of this machine; `env` are the variables that may hide some. `root` is where /proc is."""
    if gpus := tuple(_nvidia_smi() or _nvidia_files(root)):
        return _limit_cuda(Devices("nvidia", gpus, gpus), env)
    if gpus := tuple(_amd_files(root)):
        return _limit_hip(Devices("amd", gpus, gpus), env)
    return Devices()


def _nvidia_smi() -> list[Gpu]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed_by_smi(done.stdout) if done.returncode == 0 else []


def listed_by_smi(text: str) -> list[Gpu]:
    """The GPUs in the output of `nvidia-smi -L`. A GPU that is cut into slices is listed as its slices."""
    found: list[Gpu] = []
    whole: Gpu | None = None
    for line in text.splitlines():
        if matched := _GPU.match(line):
            whole = Gpu(*matched.groups())
            found.append(whole)
        elif (matched := _SLICE.match(line)) and whole is not None:
            name, uuid = matched.groups()
            found = [gpu for gpu in found if gpu is not whole]
            found.append(Gpu(uuid, f"{whole.name} {name}", uuid))
    return found


def _nvidia_files(root: Path) -> list[Gpu]:
    """The GPUs in the order of the bus, which is that of nvidia-smi."""
    found = []
    for number, file in enumerate(sorted(root.glob("proc/driver/nvidia/gpus/*/information"))):
        known, bus = _fields(file, ":"), file.parent.name
        found.append(Gpu(str(number), known.get("Model", "GPU"), known.get("GPU UUID", bus)))
    return found


def _amd_files(root: Path) -> list[Gpu]:
    """The GPUs: nodes of the kernel's topology with compute units; the others are processors."""
    folder = root / "sys/class/kfd/kfd/topology/nodes"
    nodes = sorted(folder.glob("*/properties"), key=lambda file: (len(file.parent.name), file.parent.name))
    gpus = [file.parent for file in nodes if _fields(file, " ").get("simd_count", "0") != "0"]
    return [Gpu(str(number), _text(node / "name") or "GPU", node.name) for number, node in enumerate(gpus)]


def _fields(file: Path, mark: str) -> dict[str, str]:
    pairs = (line.partition(mark) for line in _text(file).splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _limit_cuda(found: Devices, env: Mapping[str, str]) -> Devices:
    """Limit as CUDA does: up to the first word that names no GPU. The words stay as the user wrote them."""
    if CUDA not in env:
        return found
    visible = []
    for word in env[CUDA].split(","):
        gpu = found.called(word.strip())
        if gpu is None:
            break
        visible.append(replace(gpu, id=word.strip()))
    return replace(found, visible=tuple(visible), limited_by=CUDA)


def _limit_hip(found: Devices, env: Mapping[str, str]) -> Devices:
    """Limit as HIP does: it counts within what ROCR leaves, and takes CUDA's variable for its own."""
    for name in (ROCR, HIP if HIP in env else CUDA):
        if name in env:
            words = [word.strip() for word in env[name].split(",")]
            numbers = [int(word) for word in words if word.isdecimal()]
            visible = tuple(found.visible[number] for number in numbers if number < len(found.visible))
            found = replace(found, visible=visible, limited_by=name)
    return found
