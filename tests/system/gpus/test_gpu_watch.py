"""The thread that reads GPUs: what it tells, and that nobody waits for it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from oarlock.system.gpus.gpu_reading import GpuReading
from oarlock.system.gpus.gpu_watch import GpuWatch, Look, is_used_by
from tests.support.waiting import eventually

GPU = GpuReading("0", "NVIDIA H200", "GPU-0", "0000:3b:00", memory=5, memory_total=10)


class Source:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def read(self) -> list[GpuReading]:
        self.may_answer.wait(300)
        return [GPU]


def test_a_look_that_is_asked_for_comes_at_once() -> None:
    source = Source()
    source.may_answer.set()
    watch = GpuWatch(lambda: source, period=3600.0)
    watch.start()
    watch.start()
    looks: list[Look] = []

    def newer(since: float) -> bool:
        looks.extend(look for look in [watch.newest(since)] if look)
        return bool(looks) and looks[-1].began >= since

    for _ in range(3):
        now = time.monotonic()
        eventually(lambda since=now: newer(since), "look")  # type: ignore[misc]
    assert looks[-1].gpus == (GPU,)


def test_a_driver_that_hangs_stops_nobody() -> None:
    source = Source()
    watch = GpuWatch(lambda: source)
    watch.start()
    assert watch.newest() is None
    assert watch.newest(time.monotonic()) is None
    source.may_answer.set()
    eventually(lambda: watch.newest() is not None, "look")


def test_a_machine_without_gpus_says_so() -> None:
    watch = GpuWatch(lambda: None)
    watch.start()
    eventually(lambda: watch.has_none, "the end of the search")
    assert watch.newest() is None


def test_a_process_that_has_a_driver_open_uses_a_gpu(tmp_path: Path) -> None:
    files = tmp_path / "42" / "fd"
    files.mkdir(parents=True)
    (files / "0").symlink_to("/dev/null")
    assert not is_used_by(42, tmp_path)
    (files / "9").symlink_to("/dev/nvidia-uvm")
    assert is_used_by(42, tmp_path)
    assert not is_used_by(43, tmp_path)
    assert not is_used_by(os.getpid())
