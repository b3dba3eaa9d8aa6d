"""NVIDIA's library through ctypes: against a stand-in with its structures; tests/gpu has the real one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.nvml_library import NvmlLibrary

READ = """
import dataclasses, json
from oarlock.system.gpus import nvml
library = nvml.open_library()
print(json.dumps(None if library is None else [dataclasses.asdict(gpu) for gpu in library.read()]))
"""


def read() -> list[dict[str, object]] | None:
    """In a process of its own: the linker reads its variables only once."""
    done = subprocess.run(
        [sys.executable, "-c", READ], capture_output=True, text=True, timeout=300, check=True
    )
    found: list[dict[str, object]] | None = json.loads(done.stdout)
    return found


def test_every_field_is_read(nvml_library: NvmlLibrary) -> None:
    nvml_library.say(
        (40 << 30, 140 << 30, 612_500, 97, 4242, 39 << 30, "NVIDIA H200"),
        (1 << 20, 140 << 30, 0, 0, 0, 0, "NVIDIA exclusive"),
    )
    assert read() == [
        {
            "number": "0",
            "name": "NVIDIA H200",
            "uuid": "GPU-0a5d31ab-ecb1",
            "bus": "0000:3b:00",
            "memory": 40 << 30,
            "memory_total": 140 << 30,
            "power": 612.5,
            "utilization": 0.97,
            "holders": {"4242": 39 << 30},
            "is_shared": True,
        },
        {
            "number": "1",
            "name": "NVIDIA exclusive",
            "uuid": "GPU-1a5d31ab-ecb1",
            "bus": "0000:3c:00",
            "memory": 1 << 20,
            "memory_total": 140 << 30,
            "power": None,
            "utilization": 0.0,
            "holders": {},
            "is_shared": False,
        },
    ]


def test_a_library_that_finds_no_driver_is_none(
    nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OARLOCK_TEST_NVML")
    assert read() is None
