"""A run on a cluster that misses a file which stayed here: said, with the line that left it out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock.agent.protocol.pod_paths import program_folder
from oarlock.records.run_folder import RunFolder
from oarlock.run.task_state import Failure
from oarlock.screens import missing_files, summary
from tests.support.folders import ignore, write

MISSED = {
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/x/train.bin'": "data/x/train.bin",
    f"NotFoundError: no such file: '{program_folder('record')}/data/x/train.bin'": "data/x/train.bin",
    "NotFoundError: ./data/x/train.bin; No such file or directory [Op:ReadFile]": "data/x/train.bin",
    "worker-0: exit code 1\ncat: data/x/train.bin: No such file or directory": "data/x/train.bin",
    "ModuleNotFoundError: No module named 'local.settings'": "local/settings.py",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/x/other.bin'": None,
    "FileNotFoundError: [Errno 2] No such file or directory: '../../etc/passwd'": None,
    "FileNotFoundError: [Errno 2] No such file or directory: 'train.py'": None,
    "ValueError: data/x/train.bin has a bad header": None,
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / "program"
    ignore(folder, "*.bin", "/local/")
    write(folder, "train.py", "data/x/train.bin", "local/settings.py", ".env")
    record = RunFolder(tmp_path / "record")
    record.path.mkdir()
    (record.path / "cluster.json").write_text(json.dumps({"sent_from": str(folder)}))
    return record


@pytest.mark.parametrize(("text", "name"), MISSED.items())
def test_what_stayed_here_is_named_with_its_rule(text: str, name: str | None, run: RunFolder) -> None:
    told = missing_files.explain(run, text)
    assert bool(told) == (name is not None)
    if name is not None:
        line = 1 if name.endswith(".bin") else 2
        assert f"{name} is in {run.sent_from} and was not sent: line {line} of " in told[0]
        assert f"!/{name} " in told[1]


def test_credentials_are_a_rule_too(run: RunFolder) -> None:
    failed = Failure("worker-0", "", type="FileNotFoundError", message="No such file or directory: '.env'")
    told = summary.failure(run, failed)
    assert f".env is in {run.sent_from} and was not sent: it may hold credentials" in told


def test_of_a_run_that_somebody_else_sent_nothing_is_said(run: RunFolder) -> None:
    (run.path / "cluster.json").write_text("{}")
    assert not missing_files.explain(run, next(iter(MISSED)))
