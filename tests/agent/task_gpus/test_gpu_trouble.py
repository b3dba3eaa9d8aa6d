"""One line about the GPU of a task that failed."""

from __future__ import annotations

from dataclasses import replace

from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.gpu_trouble import explain
from oarlock.system.gpus.gpu_reading import GpuReading

GIB = 1 << 30
GPUS = tuple(
    GpuReading(
        str(number),
        "NVIDIA H200",
        f"GPU-{number}",
        f"0000:0{number}:00",
        90 * GIB,
        140 * GIB,
        holders=holders,
    )
    for number, holders in enumerate([{}, {}, {7: 30 * GIB, 8: 60 * GIB, 9: 1 << 20}, {}])
)
MINE = GpuClaim(given=("2",), seen=("2",))
FULL = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80"
    " GiB of which 3.10 GiB is free. Including non-PyTorch memory, this process has 76.00 GiB memory in use."
)
FALLEN = "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def text(words: str, *kernel: str, claim: GpuClaim = MINE, gpus: tuple[GpuReading, ...] = GPUS) -> str | None:
    trouble = explain(words, kernel, claim, gpus, 7)
    return trouble and trouble.text


def test_it_names_the_gpu_the_sizes_and_whoever_else_holds_memory() -> None:
    assert text(FULL) == (
        "GPU 2 (NVIDIA H200) ran out of memory: 20.00 GiB more asked for, 3.10 GiB of 139.80 GiB free;"
        " process 8 has 60.00 GiB of it: end it if it is not yours, or use smaller batches, or more GPUs"
        " with a part of the batch each"
    )


def test_a_process_with_little_memory_is_not_blamed() -> None:
    listed = f"{FULL} Process 8 has 526.00 MiB memory in use. Process 9 has 2.00 GiB memory in use."
    found = text(listed)
    assert found is not None
    assert "process 9 has 2.00 GiB of it" in found
    assert "process 8" not in found


def test_how_much_is_judged_by_the_byte_not_by_what_is_shown() -> None:
    total = int(139.8 * GIB)
    almost = total // 100 - (1 << 20)  # it would be shown as 1.40 GiB, which is more than 1%
    found = text(FULL, gpus=(replace(GPUS[2], memory_total=total, holders={8: almost}),))
    assert found is not None
    assert "process" not in found


def test_without_a_library_it_says_what_the_message_says() -> None:
    found = text(FULL, gpus=())
    assert found is not None
    assert found.startswith("GPU 0 ran out of memory: 20.00 GiB more asked for")
    assert "process" not in found


def test_a_message_without_a_number_means_the_only_gpu() -> None:
    found = text("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 20.00GiB.")
    assert found is not None
    assert found.startswith("GPU 2 (NVIDIA H200) ran out of memory: 20.00GiB more asked for; process 8 has")


def test_hardware_that_failed_counts_before_what_the_program_says() -> None:
    assert text("RuntimeError: CUDA error: unspecified launch failure", FALLEN) == (
        "GPU 2 (NVIDIA H200) has fallen off the bus (Xid 79);"
        " restart the machine, and check its power, cooling and seat"
    )


def test_the_kernel_alone_is_enough() -> None:
    assert (text("", FALLEN) or "").startswith("GPU 2 (NVIDIA H200) has fallen off the bus")
    assert (text("", FALLEN, gpus=()) or "").startswith("the GPU at 0000:02:00 has fallen off the bus")


def test_the_gpu_of_another_is_not_to_blame() -> None:
    assert text("", FALLEN.replace("02:00", "01:00")) is None
    assert text("", FALLEN.replace("02:00", "01:00").replace("'<unknown>'", "7")) is not None


def test_the_program_counts_before_its_own_trace_in_the_kernel_log() -> None:
    xid = "NVRM: Xid (PCI:0000:02:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x57c730"
    found = explain("CUDA error: device-side assert triggered", [xid], MINE, GPUS, 7)
    assert found is not None
    assert found.kind == "program"
    assert "out of range" in found.text


def test_other_failures_have_none() -> None:
    assert text("ValueError: no such thing") is None
