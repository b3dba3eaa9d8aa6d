"""Which GPUs are a task's."""

from __future__ import annotations

from oarlock.agent.task_gpus.gpu_claim import GpuClaim, claim_of
from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.system.gpus.gpu_reading import GpuReading

GPUS = tuple(
    GpuReading(str(number), "NVIDIA H200", f"GPU-{number}a5d31ab", f"0000:0{number}:00", 0, 1, holders={})
    for number in range(4)
)


def numbers(claim: GpuClaim, gpus: tuple[GpuReading, ...] = GPUS, pid: int | None = 7) -> str:
    return ",".join(gpu.number for gpu in claim.among(gpus, pid))


def test_a_task_that_was_given_gpus_has_those() -> None:
    gpus = Gpus({"worker-0": ["2"], "worker-1": ["GPU-3a5d", "0"], "evaluator-0": []}, by_local_rank=True)
    env = {"CUDA_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert numbers(claim_of(gpus, "worker-0", env)) == "2"
    assert numbers(claim_of(gpus, "worker-1", env)) == "3,0"
    assert numbers(claim_of(gpus, "evaluator-0", env)) == ""


def test_one_that_sees_all_has_those_that_it_holds() -> None:
    held = (GPUS[0], GpuReading("1", "NVIDIA H200", "GPU-1", "0000:01:00", 0, 1, holders={7: 5}))
    assert numbers(claim_of(Gpus(), "worker-0", {}), held) == "1"
    assert numbers(claim_of(Gpus(), "worker-0", {}), held, pid=8) == "0,1"


def test_a_variable_limits_what_is_seen() -> None:
    assert numbers(claim_of(Gpus(), "worker-0", {"CUDA_VISIBLE_DEVICES": "3, 1"})) == "3,1"
    assert numbers(claim_of(Gpus(), "worker-0", {"CUDA_VISIBLE_DEVICES": ""})) == ""


def test_in_a_pod_each_process_has_those_of_its_local_rank() -> None:
    """The driver there names no process that the pod can see."""
    env = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert numbers(claim_of(Gpus(), "worker-5", env)) == "2,3"
    assert numbers(claim_of(Gpus(), "worker-5", {**env, "LOCAL_WORLD_SIZE": "3"})) == "0,1,2,3"


def test_a_task_counts_the_gpus_that_it_sees() -> None:
    claim = claim_of(Gpus({"worker-0": ["2"]}), "worker-0", {"CUDA_VISIBLE_DEVICES": "2"})
    first = claim.numbered(0, GPUS)
    assert first is not None
    assert first.number == "2"
    assert claim.numbered(1, GPUS) is None
