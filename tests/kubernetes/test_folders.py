"""What travels: a program's folder, small or large, as git would see it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from oarlock.engines.kubernetes.api.client import Api
from oarlock.engines.kubernetes.api.names import selecting
from oarlock.engines.kubernetes.lifecycle import stop_delete
from oarlock.program import bundle
from oarlock.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.folders import write
from tests.support.kubernetes.driving import MEET, Named
from tests.support.kubernetes.small import SMALL_WORDS, sets

WITHOUT_CLAIM = (*SMALL_WORDS, *sets("kubernetes.claim=none"))
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
    words = ("run", "--on", "kubernetes", "--name", "live-large", "-n", "2", *WITHOUT_CLAIM)
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
    assert stop_delete.remaining(api, Named("live-huge")) == []
    assert not list((home / "runs").glob("*"))


def test_a_program_that_is_ignored_is_said(oarlock: Command, api: Api, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / ".oarlockignore").write_text("*.py\n")
    done = oarlock("run", "--on", "kubernetes", "train.py")
    assert done.returncode == 2
    assert "train.py is ignored and would stay behind" in done.stderr


MISSES = """
import os
print(sorted(name for _, _, names in os.walk(".") for name in names))
open("data/train.bin")
"""
CANARY = "canary-0815"
CREDENTIALS = (
    *(".ssh/id_rsa", ".aws/credentials", ".azure/token", ".gnupg/key", ".kube/config", ".netrc", ".env"),
    *("id_work", "server.pem", "server.key", ".bash_history", ".oarlock/runs/r1/token", ".git-credentials"),
    *(".pypirc", ".npmrc", ".docker/config.json", ".config/gcloud/credentials.db"),
)


def test_what_stays_here_is_in_no_object_and_a_program_that_misses_it_is_told(
    oarlock: Command, api: Api, tmp_path: Path, home: Path, ended: list[str]
) -> None:
    ended.append("live-misses")
    folder = tmp_path / "program"
    write(folder, *CREDENTIALS, "data/train.bin", text=CANARY)
    write(folder, "cloud.json", text=f'{{"type": "service_account", "private_key": "{CANARY}"}}')
    write(folder, ".gitignore", text="# data\n*.bin\n")
    write(folder, "train.py", text=MISSES)
    words = (
        "run",
        "--on",
        "kubernetes",
        "--name",
        "live-misses",
        *WITHOUT_CLAIM,
        "--set",
        "limits.restarts=0",
    )
    done = oarlock(*words, "train.py", cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout + done.stderr
    assert f"sending 2 files, {len(MISSES) + 13} B, of {folder}" in done.stderr
    named = ".aws/, .azure/, .bash_history, .config/gcloud/, .docker/"
    assert f"not sending files that may hold credentials: {named}" in done.stderr
    rule = f"line 2 of {folder}/.gitignore (*.bin) excludes it"
    assert f"data/train.bin is in {folder} and was not sent: {rule}" in told
    assert "['.gitignore', 'train.py']" in told
    found = {one["metadata"]["name"]: one for one in api.all("ConfigMap", selecting("live-misses"))}
    packed = b"".join(
        base64.b64decode(data) for _, one in sorted(found.items()) for data in _programs(one).values()
    )
    assert b"data/train.bin" in gzip.decompress(packed)
    objects = json.dumps([*found.values(), *api.all("Secret", selecting("live-misses"))])
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert all(
        CANARY.encode() not in text
        for text in (*kept, gzip.decompress(packed), told.encode(), objects.encode())
    )
    assert RunFolder(home / "runs" / "live-misses").sent_from == folder
    # Somebody else's record of it: nothing in it is taken for what was said here.
    elsewhere = {**os.environ, "OARLOCK_HOME": str(tmp_path / "elsewhere")}
    assert oarlock("status", "live-misses", env=elsewhere).returncode == 0
    assert not RunFolder(tmp_path / "elsewhere" / "runs" / "live-misses").is_from_here


def _programs(found: dict[str, Any]) -> dict[str, str]:
    """The parts of the program's archive in a ConfigMap."""
    held = found.get("binaryData", {})
    return {name: data for name, data in sorted(held.items()) if name.startswith("program")}
