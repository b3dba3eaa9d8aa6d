"""Before a program's folder goes to a cluster: how much of it goes, and which credentials stay here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import write

LEFT = "not sending files that may hold credentials: .env, certs/ca.pem; to send one, add the line !/.env"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    write(folder, "train.py", "pkg/m.py", ".env", "certs/ca.pem")
    return folder


def test_a_dry_run_says_what_would_travel(oarlock: Any, program: Path) -> None:
    words = ("run", "--on", "kubernetes", "--dry-run")
    done = oarlock(*words, "train.py", cwd=program)
    assert done.returncode == 0, done.stderr
    assert f"oarlock: sending 2 files, 2 B, of {program}\noarlock: {LEFT}" in done.stderr
    told = json.loads(oarlock(*words, "--json", "train.py", cwd=program).stdout)
    assert told["program"] == {"files": 2, "size": 2, "withheld": [".env", "certs/ca.pem"]}
    assert "sending" not in oarlock("run", "--dry-run", "train.py", cwd=program).stderr


def test_a_plan_says_so_too(oarlock: Any, program: Path) -> None:
    done = oarlock("plan", "train.py", cwd=program, env={**os.environ, "KUBECONFIG": "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert f"{program}: 2 B in 2 files" in done.stdout
    assert LEFT in done.stdout


def test_a_home_does_not_travel(oarlock: Any, program: Path) -> None:
    done = oarlock("render", "train.py", cwd=program, env={**os.environ, "HOME": str(program)})
    assert done.returncode == 2
    assert f"{program} would travel to the cluster, and is your home folder: put the program" in done.stderr
