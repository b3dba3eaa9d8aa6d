"""Peaks of GPUs by the names that drivers give them."""

from __future__ import annotations

import pytest

from oarlock.run.gpu_facts.gpu_peaks import peak_of


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA B200", 2250),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla V100-PCIE-32GB", 112),
        ("Tesla T4", 65),
        ("NVIDIA GeForce RTX 4090", 165),
        ("AMD Instinct MI300X", 1307),
    ],
)
def test_known_gpus(name: str, tera: float) -> None:
    assert peak_of(name) == tera * 1e12


@pytest.mark.parametrize(
    "name", ["", "cpu", "NVIDIA H300", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA T400"]
)
def test_others_have_no_peak(name: str) -> None:
    assert peak_of(name) is None
