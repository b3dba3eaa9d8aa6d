"""What travels: a program's folder, small or large, as git would see it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from kubernetes.driving import MEET, Named

from oarlock import bundle
from oarlock.engines.kubernetes import ending
from oarlock.engines.kubernetes.api import Api
from oarlock.engines.kubernetes.labels import selecting

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = (
    "--set",
    "roles.worker.cpu=100m",
    "--set",
    "roles.worker.memory=200Mi",
    "--set",
    "kubernetes.claim=none",
)
PROGRAM = """
import hashlib, os, pathlib
here = pathlib.Path()
print(hashlib.sha256((here / "data.bin").read_bytes()).hexdigest())
print(sorted(str(path) for path in here.rglob("*") if path.is_file() and "__pycache__" not in str(path)))
print(os.access("run.sh", os.X_OK))
"""


def test_a_folder_of_several_mebibytes_arrives_as_it_was(
    oarlock: Command, api: Api, tmp_path: Path, ended: list[str]
) -> None:
    ended.append("live-large")
    data = os.urandom(3_500_000)  # which no compression makes smaller
    folder = tmp_path / "program"
    (folder / "package").mkdir(parents=True)
    (folder / "data.bin").write_bytes(data)
    (folder / "train.py").write_text(PROGRAM + MEET)
    (folder / "package" / "part.py").touch()
    (folder / "run.sh").touch(mode=0o755)
    (folder / "secret.key").write_text("stays here")
    (folder / ".oarlockignore").write_text("*.key\n")
    words = ("run", "--on", "kubernetes", "--name", "live-large", "-n", "2", *SMALL)
    done = oarlock(*words, "train.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for task in ("worker-0", "worker-1"):
        said = [
            line.partition(" | ")[2] for line in done.stdout.splitlines() if line.startswith(f"{task} | ")
        ]
        assert said[0] == hashlib.sha256(data).hexdigest()
        assert said[1] == "['.oarlockignore', 'data.bin', 'package/part.py', 'run.sh', 'train.py']"
        assert said[2] == "True"
    maps = api.all("ConfigMap", selecting("live-large"))
    assert len(maps) == 4


def test_a_folder_that_is_too_large_creates_nothing(
    oarlock: Command, api: Api, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "weights.bin").write_bytes(os.urandom(bundle.LIMIT + 1))
    done = oarlock("run", "--on", "kubernetes", "--name", "live-huge", "train.py", cwd=folder)
    assert done.returncode == 2
    assert "weights.bin" in done.stderr
    assert ".oarlockignore" in done.stderr
    assert ending.remaining(api, Named("live-huge")) == []
    assert not list((home / "runs").glob("*"))


def test_a_program_that_is_ignored_is_said(oarlock: Command, api: Api, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / ".oarlockignore").write_text("*.py\n")
    done = oarlock("run", "--on", "kubernetes", "train.py")
    assert done.returncode == 2
    assert "train.py is ignored and would stay behind" in done.stderr
