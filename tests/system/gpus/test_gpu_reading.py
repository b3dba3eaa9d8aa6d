"""How GPUs are called: by number, by UUID, by their place on the bus."""

from __future__ import annotations

import pytest

from oarlock.system.gpus.gpu_reading import GpuReading, bus_of


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("PCI:0000:3b:00", "0000:3b:00"),
        ("0019:01:00", "0019:01:00"),
        ("3b:00.0", "0000:3b:00"),
        ("nothing", ""),
    ],
)
def test_one_form_of_a_place_on_the_bus(text: str, bus: str) -> None:
    assert bus_of(text) == bus


def test_variables_name_a_gpu_by_number_or_uuid() -> None:
    gpu = GpuReading("3", "NVIDIA H200", "GPU-3a5d31ab-ecb1", "0000:3b:00", 0, 1)
    assert all(gpu.is_called(word) for word in ("3", "GPU-3a5d31ab-ecb1", "GPU-3a5d"))
    assert not any(gpu.is_called(word) for word in ("", "33", "GPU-", "GPU-4", "MIG-3a5d"))
