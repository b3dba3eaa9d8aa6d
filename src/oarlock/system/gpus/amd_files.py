"""AMD's GPUs, from the kernel's files: memory, power and utilization, numbered as ROCm numbers them."""

from __future__ import annotations

from pathlib import Path

from oarlock.system.gpus.gpu_reading import GpuReading, bus_of


class AmdFiles:
    """Reads below `root`, which contains /sys."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._sys = root / "sys/class"

    def read(self) -> list[GpuReading]:
        """Return the readings of all GPUs, in the order of the kernel's topology."""
        nodes = self._sys / "kfd/kfd/topology/nodes"
        files = sorted(nodes.glob("*/properties"), key=lambda file: int(file.parent.name))
        known = [(file.parent, dict(_pairs(file))) for file in files]
        gpus = [(node, properties) for node, properties in known if properties.get("simd_count", "0") != "0"]
        readings = [self._reading(str(number), *gpu) for number, gpu in enumerate(gpus)]
        return [reading for reading in readings if reading is not None]

    def _reading(self, number: str, node: Path, properties: dict[str, str]) -> GpuReading | None:
        device = self._sys / f"drm/renderD{properties.get('drm_render_minor', '')}/device"
        used, total = _whole(device / "mem_info_vram_used"), _whole(device / "mem_info_vram_total")
        if used is None or total is None:
            return None
        sensors = [*device.glob("hwmon/hwmon*/power1_average"), *device.glob("hwmon/hwmon*/power1_input")]
        microwatts = _whole(sensors[0]) if sensors else None
        busy = _whole(device / "gpu_busy_percent")
        return GpuReading(
            number=number,
            name=_text(device / "product_name") or _text(node / "name") or "GPU",
            uuid=_text(device / "unique_id"),
            bus=bus_of(device.resolve().name),
            memory=used,
            memory_total=total,
            power=None if microwatts is None else microwatts / 1e6,
            utilization=None if busy is None else busy / 100,
        )


def _pairs(file: Path) -> list[tuple[str, str]]:
    parts = (line.split(" ", 1) for line in _text(file).splitlines())
    return [(part[0], part[1].strip()) for part in parts if len(part) == 2]


def _whole(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
