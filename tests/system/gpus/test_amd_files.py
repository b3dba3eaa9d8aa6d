"""AMD's GPUs, from files as the kernel has them."""

from __future__ import annotations

from pathlib import Path

from oarlock.system.gpus.amd_files import AmdFiles


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def test_memory_power_and_utilization(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0", properties="cpu_cores_count 64\nsimd_count 0\ndrm_render_minor 0", name="")
    write(nodes / "2", properties="simd_count 1216\ndrm_render_minor 129", name="gfx942")
    write(nodes / "10", properties="simd_count 1216\ndrm_render_minor 130", name="gfx942")
    for minor, bus in ((129, "0000:0c:00.0"), (130, "0000:22:00.0")):
        device = tmp_path / "sys/devices" / bus
        write(device, mem_info_vram_used=3 << 30, mem_info_vram_total=192 << 30, gpu_busy_percent=40)
        write(device, unique_id="f00d", product_name="AMD Instinct MI300X")
        write(device / "hwmon/hwmon3", power1_average=350_000_000)
        link = tmp_path / f"sys/class/drm/renderD{minor}"
        link.mkdir(parents=True)
        (link / "device").symlink_to(device)
    first, second = AmdFiles(tmp_path).read()
    assert (first.number, first.name, first.bus) == ("0", "AMD Instinct MI300X", "0000:0c:00")
    assert (first.memory, first.memory_total, first.power, first.utilization) == (
        3 << 30,
        192 << 30,
        350.0,
        0.4,
    )
    assert (second.number, second.bus) == ("1", "0000:22:00")


def test_a_gpu_whose_files_are_not_there_is_none(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/kfd/kfd/topology/nodes/1", properties="simd_count 8\ndrm_render_minor 128")
    assert AmdFiles(tmp_path).read() == []
    assert AmdFiles(tmp_path / "nothing").read() == []
