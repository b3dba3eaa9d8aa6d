"""A thread that reads the GPUs of this machine, so that a driver that hangs blocks no other thread."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from oarlock.system.gpus import nvml
from oarlock.system.gpus.amd_files import AmdFiles
from oarlock.system.gpus.gpu_reading import GpuReading

_PERIOD = 5.0  # seconds between two readings
_USED = ("/dev/nvidia-uvm", "/dev/kfd")  # what CUDA and ROCm open


class GpuSource(Protocol):
    """Where readings come from."""

    def read(self) -> list[GpuReading]:
        """Return the current reading of every GPU."""


class Look(NamedTuple):
    """All GPUs at one time."""

    began: float  # on the monotonic clock
    gpus: tuple[GpuReading, ...]


def find_source() -> GpuSource | None:
    """Return the reader for this machine's GPUs; None if there are none."""
    found = (nvml.open_library(), AmdFiles())
    return next((source for source in found if source is not None and source.read()), None)


class GpuWatch:
    """Reads every `period` seconds, and at once on request."""

    def __init__(self, find: Callable[[], GpuSource | None] = find_source, period: float = _PERIOD) -> None:
        self._find = find
        self._period = period
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        self._newest: Look | None = None
        self.has_none = False  # this machine has no GPU: there will never be a reading

    def start(self) -> None:
        """Start to read. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="oarlock-gpus", daemon=True)
            self._thread.start()

    def newest(self, since: float = 0.0) -> Look | None:
        """Return the newest look that began at `since` or later. None if there is none yet; one follows."""
        newest = self._newest
        if newest is not None and newest.began >= since:
            return newest
        self._asked.set()
        return None

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the loop handles signals
        source = self._find()
        self.has_none = source is None
        while source is not None:
            self._asked.clear()
            began = time.monotonic()
            self._newest = Look(began, tuple(source.read()))
            self._asked.wait(self._period)


def is_used_by(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process has a GPU's driver open. Without permission to look, it seems not."""
    try:
        with os.scandir(proc / str(pid) / "fd") as files:
            return any(_target(file.path).startswith(_USED) for file in files)
    except OSError:
        return False


def _target(link: str) -> str:
    try:
        return str(Path(link).readlink())
    except OSError:
        return ""
