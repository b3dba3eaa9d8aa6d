from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.engines.local.gpu_devices import Devices, Gpu, find, listed_by_smi
from tests.support.fake_gpus import Machine, listing

SLICED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736)
  MIG 3g.20gb     Device  1: (UUID: MIG-a28ad590)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1d5ba0d6)
"""


def test_a_gpu_that_is_cut_into_slices_is_its_slices() -> None:
    assert [gpu.id for gpu in listed_by_smi(listing(2))] == ["0", "1"]
    assert [(gpu.id, gpu.name) for gpu in listed_by_smi(SLICED)] == [
        ("MIG-c7384736", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("MIG-a28ad590", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("1", "NVIDIA A100-SXM4-40GB"),
    ]


@pytest.mark.parametrize(
    ("value", "ids", "keys"),
    [
        ("1,0", ["1", "0"], ["GPU-1a5d31ab-ecb1", "GPU-0a5d31ab-ecb1"]),
        ("GPU-1a5", ["GPU-1a5"], ["GPU-1a5d31ab-ecb1"]),
        ("2, 7,1", ["2"], ["GPU-2a5d31ab-ecb1"]),  # CUDA stops at the first that does not exist
        ("", [], []),
        ("-1", [], []),
    ],
)
def test_what_the_user_hides_is_hidden(
    value: str,
    ids: list[str],
    keys: list[str],
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(3)
    found = find({"CUDA_VISIBLE_DEVICES": value})
    assert (found.make, len(found.all), found.limited_by) == ("nvidia", 3, "CUDA_VISIBLE_DEVICES")
    assert [gpu.id for gpu in found.visible] == ids
    assert [gpu.key for gpu in found.visible] == keys


def test_without_nvidia_smi_the_drivers_files_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find({}, tmp_path) == Devices()
    for bus, uuid in (("0000:0b:00.0", "GPU-b"), ("0000:04:00.0", "GPU-a")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA T4\nIRQ:   35\nGPU UUID: \t {uuid}\n")
    gpus = (Gpu("0", "NVIDIA T4", "GPU-a"), Gpu("1", "NVIDIA T4", "GPU-b"))
    assert find({}, tmp_path) == Devices("nvidia", gpus, gpus)


def test_gpus_of_amd_are_found_in_the_kernels_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for node, units in enumerate((0, 440, 440, 440)):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\n")
        (folder / "name").write_text("aldebaran\n" if units else "\n")
    found = find({}, tmp_path)
    assert (found.make, [gpu.id for gpu in found.visible]) == ("amd", ["0", "1", "2"])
    limits = {"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}  # the second counts within the first
    assert [gpu.id for gpu in find(limits, tmp_path).visible] == ["2"]
