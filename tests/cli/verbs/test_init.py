"""`oarlock init`: what it writes can be run, commented lines included."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oarlock.job import job_file


def test_it_writes_a_job_file_that_loads_and_runs(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "my train.py").write_text("print('trained')")
    done = oarlock("init", "my train.py")
    assert (done.returncode, done.stdout) == (0, f"wrote {tmp_path}/job.yaml\n")
    job = job_file.load(str(tmp_path)).job
    assert job.program == "my train.py"
    assert job.roles.worker is not None
    assert job.roles.worker.replicas.min == 2
    assert "worker-1 | trained" in oarlock("run").stdout


def test_every_commented_line_is_valid(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    text = oarlock("init", "--stdout").stdout
    uncommented = re.sub(r"^( *)# ((?:  )*\w+:)", r"\1\2", text, flags=re.MULTILINE)
    (tmp_path / "job.yaml").write_text(uncommented)
    job = job_file.load(str(tmp_path)).job
    assert job.args == ("--epochs", "3")
    assert job.roles.evaluator is not None
    assert job.limits.grace.seconds == 30
    assert job.storage.model == "./model"
    assert not [line for line in uncommented.splitlines()[2:] if line.lstrip().startswith("#")]


def test_it_does_not_write_over_a_file_unless_forced(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text("mine")
    refused = oarlock("init")
    assert refused.returncode == 2
    assert "exists; --force overwrites it" in refused.stderr
    assert (tmp_path / "job.yaml").read_text() == "mine"
    told = json.loads(oarlock("init", "--force", "--json").stdout)
    assert set(told) == {"file", "job"}
    assert told["file"] == str(tmp_path / "job.yaml")
    assert told["job"]["program"] == "train.py"


def test_it_is_written_beside_the_program(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "null").mkdir()
    (tmp_path / "null" / "only.py").touch()
    assert oarlock("init", "null").returncode == 0
    job = job_file.load(str(tmp_path / "null")).job
    assert (job.name, job.program) == ("null", "only.py")


@pytest.mark.parametrize("words", [["nope.py"], []])
def test_without_a_program_it_says_so(oarlock: Any, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "b.py").touch()
    done = oarlock("init", *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "job.yaml").exists()
