from __future__ import annotations

from pathlib import Path
from typing import Any

from oarlock.engines.kubernetes.manifests import groups, packing, pod_gpus
from oarlock.job.model import Job, parse

EIGHT_AND_ONE: dict[str, Any] = {
    "worker": [{"replicas": 2, "gpu": 8, "processes": 4}, {"gpu": 1}],
    "evaluator": {"gpu": 1},
}


def job(**roles: Any) -> Job:
    return parse({"program": "train.py", "roles": roles})


def test_processes_of_a_pod_share_its_gpus() -> None:
    pairs = [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
    given = pod_gpus.of(job(**EIGHT_AND_ONE), "tensorflow").tasks
    assert given == {f"worker-{index}": pairs[index % 4] for index in range(8)}
    assert pod_gpus.of(job(**EIGHT_AND_ONE), "torch").tasks == {}
    assert pod_gpus.of(job(worker={"replicas": 3, "gpu": 8}), "jax").tasks == {}


def test_pods_of_unequal_groups_have_their_own_numbers_of_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import jax")
    spec = packing.spec_for(job(**EIGHT_AND_ONE), tmp_path, "run-abcd")
    assert (spec.sizes, spec.machines) == ({"worker": 9, "evaluator": 1}, 4)
    found = [
        (group.name, [spec.seat_of(group.role, group.offset + index).slots for index in range(group.count)])
        for group in groups.of(job(**EIGHT_AND_ONE))
    ]
    assert found == [
        ("lead", [{"worker": 4}]),
        ("worker", [{"worker": 4}]),
        ("worker-2", [{"worker": 1}]),
        ("evaluator", [{"evaluator": 1}]),
    ]
