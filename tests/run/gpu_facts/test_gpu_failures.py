"""Failures of GPUs, in the very words that libraries, NCCL and the driver print."""

from __future__ import annotations

import pytest

from oarlock.run.gpu_facts import gpu_failures
from oarlock.run.gpu_facts.gpu_failures import in_bytes, in_kernel_log, in_words

TORCH = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 1 has a total capacity of 31.47 GiB"
    " of which 12.73 GiB"
    " is free. Process 1246069 has 577.00 MiB memory in use. Including non-PyTorch memory,"
    " this process has 18.73"
    " GiB memory in use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35"
    " GiB is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
TORCH_1 = (
    "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already"
    " allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)"
)
JAX = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment stats:"
JAX_2 = "RESOURCE_EXHAUSTED: Failed to allocate request for 176.00MiB (184549376B) on device ordinal 3"
TENSORFLOW = (
    "{{function_node __wrapped__MatMul_device_/job:localhost/replica:0/task:0/device:GPU:0}}"
    " OOM when allocating"
    " tensor with shape[65536,65536] and type float on"
    " /job:localhost/replica:0/task:0/device:GPU:2 by allocator"
    " GPU_2_bfc [Op:MatMul]"
)
NCCL_REMOTE = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process"
    " exited or there was a"
    " network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a"
    " remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv failed"
    " : Connection reset"
)
WATCHDOG = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 3 Rank 5] Process"
    " group watchdog thread terminated with exception: [Rank 5] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064,"
    " Timeout(ms)=600000) ran for"
    " 600020 milliseconds before timing out."
)


def test_torch_says_which_gpu_how_much_and_who_else() -> None:
    found = in_words(TORCH)
    assert found is not None
    assert (found.kind, found.ordinal, found.holders) == ("memory", 1, {1246069: "577.00 MiB"})
    assert found.what == "it ran out of memory: 22.78 GiB more asked for, 12.73 GiB of 31.47 GiB free"
    assert "smaller batches" in found.fix


def test_memory_in_pieces_has_another_remedy() -> None:
    found = in_words(TORCH.replace("22.78 GiB", "900.00 MiB"))
    assert found is not None
    assert "expandable_segments" in found.fix


@pytest.mark.parametrize(
    ("text", "ordinal", "what"),
    [
        (TORCH_1, 0, "2.26 GiB more asked for, 3.03 GiB of 6.00 GiB free"),
        (JAX, None, "4770354232 bytes more asked for"),
        (JAX_2, 3, "176.00MiB more asked for"),
        (TENSORFLOW, 2, "shape[65536,65536] more asked for"),
        ("CUDA error: out of memory\nCUDA kernel errors might be", None, ""),
        ("HIP error: out of memory\nHIP kernel errors might be", None, ""),
        ("RuntimeError: CUDA driver error: out of memory", None, ""),
        ("RuntimeError: Triton Error [CUDA]: out of memory", None, ""),
        ("RuntimeError: Triton Error [HIP]:  Code: 2, Messsage: out of memory", None, ""),
    ],
)
def test_every_library_has_its_own_words_for_it(text: str, ordinal: int | None, what: str) -> None:
    found = in_words(text)
    assert found is not None
    assert (found.kind, found.ordinal, found.holders) == ("memory", ordinal, {})
    assert found.what == f"it ran out of memory{': ' if what else ''}{what}"


@pytest.mark.parametrize(
    ("text", "kind", "advice"),
    [
        ("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'", "program", "out of range"),
        ("CUDA error: an illegal memory access was encountered", "program", "CUDA_LAUNCH_BLOCKING"),
        ("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", "program", "compute-sanitizer"),
        ("CUDA error: uncorrectable ECC error encountered", "faulty", "--gpu-reset"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "faulty", "--gpu-reset"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "busy", "exclusively"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "busy", "exclusively"),
        ("CUDA error: no kernel image is available for execution on the device", "setup", "build"),
        ("CUDA error: unspecified launch failure", "program", "compute-sanitizer"),
        ("CUDA driver version is insufficient for CUDA runtime version", "setup", "update the driver"),
        (NCCL_REMOTE, "peer", "why that one ended"),
        (WATCHDOG, "peer", "oarlock stacks"),
        (
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
            "peer",
            "/dev/shm",
        ),
        ("ncclInternalError: Internal check failed.\nLast error:", "peer", "NCCL_DEBUG"),
        ("ncclUnhandledCudaError: Call to CUDA function failed.", "peer", "NCCL_DEBUG"),
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "setup", "LOCAL_RANK"),
    ],
)
def test_other_failures_have_a_sentence_each(text: str, kind: str, advice: str) -> None:
    found = in_words(text)
    assert found is not None
    assert found.kind == kind
    assert advice in found.fix


def test_a_cause_counts_before_what_follows_from_it() -> None:
    found = in_words(f"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n{TORCH}")
    assert found is not None
    assert found.kind == "memory"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: batch is too large",
        "Triton Error [CUDA]: invalid argument\nKilled: the machine is out of memory",
        "MemoryError: Unable to allocate 7.45 GiB for an array",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes.",
        "RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes.",
        "OOM when allocating tensor with shape[1] and type float on /device:CPU:0 by allocator cpu",
    ],
)
def test_other_failures_are_none_of_a_gpu(text: str) -> None:
    assert in_words(text) is None


@pytest.mark.parametrize(
    ("line", "kind", "bus", "pid", "what"),
    [
        (
            "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            *("lost", "0000:44:00", None, "it has fallen off the bus (Xid 79)"),
        ),
        (
            "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
            *("faulty", "0000:9b:00", 1234, "its memory had an error that hit only this program (Xid 94)"),
        ),
        (
            "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on",
            *("program", "0000:cb:00", None, "a kernel raised an exception (Xid 13)"),
        ),
        (
            "NVRM: Xid (PCI:0000:0b:00): 999, pid=7, name=x, Something new.",
            *("faulty", "0000:0b:00", 7, "pid=7, name=x, Something new (Xid 999)"),
        ),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) installed in this system has"
            " NVRM: fallen off the bus and is not responding to commands.",
            *("lost", "0000:b3:00.0", None, "it has fallen off the bus"),
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
            *("faulty", "0000:03:00.0", None, "the kernel says: GPU reset begin"),
        ),
    ],
)
def test_lines_of_the_kernel(line: str, kind: str, bus: str, pid: int | None, what: str) -> None:
    found = in_kernel_log(line)
    assert found is not None
    assert (found.kind, found.bus, found.pid, found.what) == (kind, bus, pid, what)
    assert found.fix


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05",
        "NVRM: Xid (PCI:0000:0b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU"
        " Reset Required)",
        "amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!",
    ],
)
def test_not_all_that_the_kernel_says_is_a_failure(line: str) -> None:
    assert in_kernel_log(line) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.00 GiB", 2**31), ("176.00MiB", 176 << 20), ("12 bytes", 12), ("7 B", 7), ("shape[3]", 0)],
)
def test_sizes(text: str, number: float) -> None:
    assert in_bytes(text) == number


def test_every_kind_is_named() -> None:
    rows = {kind for _, kind, _, _ in gpu_failures._WORDS} | {
        kind for kind, _, _ in gpu_failures._XIDS.values()
    }
    assert rows | {"memory"} == set(gpu_failures.KINDS)
