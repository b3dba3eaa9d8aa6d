"""GPUs on this machine: who gets which, who is refused, and what programs see."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.local import gpu_shares, local_record, machine_checks
from oarlock.errors import OarlockError
from oarlock.job.job_file import JobFile
from oarlock.job.model import parse
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from oarlock.run.gpu_facts.gpu_view import Gpus
from tests.support.fake_gpus import Machine
from tests.support.small_programs import write

SHOW = """
    import os
    print("sees", repr(os.environ.get("CUDA_VISIBLE_DEVICES")), flush=True)
"""


@pytest.fixture
def give(tmp_path: Path, home: Path) -> Any:
    write(tmp_path / "train.py", SHOW)

    def call(program: str = "train.py", **roles: Any) -> Gpus:
        return gpu_shares.give(parse({"program": program, "roles": roles}), tmp_path, "new")

    return call


@pytest.mark.parametrize(
    ("roles", "shares"),
    [
        ({"worker": {"replicas": 2, "gpu": 1}}, {"worker-0": ["0"], "worker-1": ["1"]}),
        ({"worker": {"gpu": 4}}, {"worker-0": ["0", "1", "2", "3"]}),
        ({"worker": {"gpu": 4, "processes": 2}}, {"worker-0": ["0", "1"], "worker-1": ["2", "3"]}),
        ({"worker": {"gpu": 0}}, {"worker-0": []}),
        ({"worker": 1}, {}),  # not said: it sees all
        ({"worker": 2, "ps": 1, "evaluator": 1}, {"ps-0": [], "evaluator-0": []}),
        ({"worker": 1, "evaluator": {"gpu": 0}}, {"evaluator-0": []}),
        ({"worker": 1, "evaluator": {"gpu": 1}}, {"worker-0": [], "evaluator-0": ["0"]}),
        (
            {"worker": [{"gpu": 2, "replicas": 2}, {"cpu": 1}], "ps": 1},
            {"worker-0": ["0", "1"], "worker-1": ["2", "3"], "worker-2": [], "ps-0": []},
        ),
    ],
)
def test_who_gets_which(
    roles: Any,
    shares: Any,
    give: Any,
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(4)
    assert give(**roles).tasks == shares


def test_a_torch_program_finds_its_own_by_its_local_rank(
    give: Any,
    tmp_path: Path,
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(2)
    write(tmp_path / "with_torch.py", "import torch")
    assert give("with_torch.py", worker={"replicas": 2, "gpu": 1}).by_local_rank
    assert not give("with_torch.py", worker={"replicas": 1, "gpu": 2}).by_local_rank
    assert not give(worker={"replicas": 2, "gpu": 1}).by_local_rank


def test_what_a_living_run_has_is_not_free(
    give: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(3)
    job = parse({"program": "train.py", "name": "first", "roles": {"worker": {"gpu": 1}}})
    held: list[int] = []

    def fill(draft: RunFolder) -> None:
        held.append(draft.hold())
        local_record.fill(draft, JobFile(job, tmp_path, None), 1, is_new=True)

    first = runs.create("first", fill)
    assert give(worker={"gpu": 2}).tasks == {"worker-0": ["1", "2"]}
    with pytest.raises(OarlockError) as refused:
        give(worker={"replicas": 3, "gpu": 1})
    assert str(refused.value) == (
        "the job asks for 3 GPUs, and this machine has 3, 2 of them free: "
        f"{first.name} has 1; wait for it, or `oarlock stop {first.name}`"
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0a5,2")
    assert give(worker={"gpu": 1}).tasks == {"worker-0": ["2"]}
    with pytest.raises(
        OarlockError, match=r"this machine has 3 .CUDA_VISIBLE_DEVICES allows 2., 1 of them free"
    ):
        give(worker={"gpu": 2})
    os.close(held[0])
    assert give(worker={"gpu": 2}).tasks == {"worker-0": ["GPU-0a5", "2"]}


def test_of_clients_that_start_at_the_same_time_one_gets_the_only_gpu(
    home: Path,
    tmp_path: Path,
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(1)
    write(tmp_path / "train.py", SHOW)
    job = parse({"program": "train.py", "name": "race", "roles": {"worker": {"gpu": 1}}})
    held: list[int] = []

    def fill(draft: RunFolder) -> None:
        held.append(draft.hold())
        local_record.fill(draft, JobFile(job, tmp_path, None), 1, is_new=True)

    def start(_: int) -> str:
        try:
            with gpu_shares.choosing(job):
                runs.create("race", fill)
        except OarlockError as refused:
            return str(refused)
        return "started"

    with ThreadPoolExecutor(4) as clients:
        told = sorted(clients.map(start, range(4)))
    [winner] = runs.all_runs()
    assert told[0] == "started"
    assert all(f"none of them free: {winner.name} has 1" in text for text in told[1:]), told
    for fd in held:
        os.close(fd)


def test_two_tasks_and_one_gpu(
    oarlock: Any,
    tmp_path: Path,
    machine_with_gpus: Machine,
) -> None:
    machine_with_gpus(1)
    write(tmp_path / "train.py", SHOW)
    done = oarlock("run", "-n", "2", "--set", "roles.worker.gpu=1", "train.py")
    assert done.returncode == 1
    assert "the job asks for 2 GPUs, and this machine has 1; ask for fewer workers" in done.stderr
    assert runs.all_runs() == []
    ordered = ("run", "-n", "1", "--evaluator", "--set", "roles.worker.gpu=1")
    done = oarlock(*ordered, "train.py")
    assert "worker-0 | sees '0'" in done.stdout
    assert "evaluator-0 | sees ''" in done.stdout
    told = json.loads(oarlock("status", "--json").stdout)
    assert told["gpus"] == {"worker-0": ["0"], "evaluator-0": []}
    assert "GPUs\n  worker-0: 0\n  evaluator-0: none\n" in oarlock("status").stdout
    told = json.loads(oarlock(*ordered, "--dry-run", "--json", "train.py").stdout)
    assert [task["env"]["CUDA_VISIBLE_DEVICES"] for task in told["tasks"]] == ["0", ""]
    assert machine_checks.gpus()["detail"] == "1 x NVIDIA H200"
