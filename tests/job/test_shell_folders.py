"""DATA_DIR and its like in the shell of the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.errors import JobError
from oarlock.job.model import parse
from oarlock.job.shell_folders import adopt

CWD = Path("/here")
PLAIN = parse({"program": "train.py"})


def test_a_folder_that_the_job_does_not_name_is_the_shells() -> None:
    shell = {"DATA_DIR": "/x", "CHECKPOINT_DIR": "saved", "MODEL_DIR": "s3://bucket/model", "LOG_DIR": ""}
    job, notes = adopt(PLAIN, shell, CWD, is_here=True)
    storage = job.storage
    assert (storage.data, storage.checkpoints, storage.model, storage.logs) == (
        *("/x", "/here/saved", "s3://bucket/model"),
        None,
    )
    assert notes == [
        "data: /x, from the shell's DATA_DIR",
        "checkpoints: /here/saved, from the shell's CHECKPOINT_DIR",
        "model: s3://bucket/model, from the shell's MODEL_DIR",
    ]


def test_the_jobs_own_wins() -> None:
    named = parse({"program": "train.py", "storage": {"logs": "./logs"}})
    job, notes = adopt(named, {"LOG_DIR": "/x"}, CWD, is_here=True)
    assert job == named
    assert notes == ["the shell's LOG_DIR is ignored: the job has storage.logs: ./logs"]


def test_a_cluster_takes_only_urls() -> None:
    job, notes = adopt(PLAIN, {"DATA_DIR": "/x", "MODEL_DIR": "s3://b/m"}, CWD, is_here=False)
    assert (job.storage.data, job.storage.model) == (None, "s3://b/m")
    assert notes == [
        "the shell's DATA_DIR is ignored: pods do not have this machine's folders; use storage.data",
        "model: s3://b/m, from the shell's MODEL_DIR",
    ]


def test_the_name_of_a_pod_is_ours() -> None:
    _, notes = adopt(PLAIN, {"POD_NAME": "notebook-0"}, CWD, is_here=True)
    assert notes == ["the shell's POD_NAME is ignored: Oarlock sets it for each task"]


def test_what_a_task_has_from_its_own_run_is_no_shells() -> None:
    """Or a run that a task starts would write into the checkpoints of the task's run."""
    assert adopt(PLAIN, {"OARLOCK_RUN": "a-bcde", "CHECKPOINT_DIR": "/c"}, CWD, is_here=True) == (PLAIN, [])


def test_a_folder_that_the_job_cannot_have_is_refused() -> None:
    job = parse({"program": "train.py", "storage": {"snapshots": "s3://b/s"}})
    with pytest.raises(JobError, match=r"the shell's CHECKPOINT_DIR: snapshots copy a folder.*; unset it"):
        adopt(job, {"CHECKPOINT_DIR": "s3://b/c"}, CWD, is_here=True)
