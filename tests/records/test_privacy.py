"""Records are their owner's: nobody else reads them, or takes their locks."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder

NOBODY = 65534
# Prints each of its arguments that it can read, list or lock.
SPY = """
for file in "$@"; do
    head -c 1 "$file" >/dev/null 2>&1 && echo "read $file"
    ls "$file" >/dev/null 2>&1 && echo "list $file"
    flock -n "$file" true >/dev/null 2>&1 && echo "lock $file"
done
"""
# Creates its folders of caches and data as frameworks do.
FILLS_CACHES = """
import os
for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "DATA_DIR"):
    os.makedirs(os.environ[name], exist_ok=True)
"""


@pytest.fixture
def open_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An OARLOCK_HOME to which the way is open for everybody."""
    top = Path(tempfile.mkdtemp(prefix="oarlock-test-"))
    top.chmod(0o755)
    monkeypatch.setenv("OARLOCK_HOME", str(top / "home"))
    yield top / "home"
    shutil.rmtree(top)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
def test_another_user_can_neither_read_nor_lock_anything(
    oarlock: Any, open_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    before = os.umask(0o022)
    try:
        done = oarlock(
            "run", "--cold", "--env", "API_KEY=canary", "--name", "mine", "train.py", env=os.environ
        )
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    run = RunFolder(open_home / "runs" / "mine")
    found = [open_home, *open_home.rglob("*")]
    assert {"lock", "agent.json", "job.yaml", "events.jsonl"} <= {path.name for path in found}
    spy = subprocess.run(
        ["sh", "-c", SPY, "spy", str(open_home.parent), *map(str, found)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    top = open_home.parent
    assert set(spy.stdout.splitlines()) <= {f"list {top}", f"lock {top}"}, "and it could look at all"
    assert f"list {top}" in spy.stdout
    assert [mode(run.path / name) for name in ("agent.json", "job.yaml", "token", "lock")] == [0o600] * 4


def test_a_home_of_an_older_version_is_tightened(oarlock: Any, open_home: Path) -> None:
    record = open_home / "runs" / "old"
    record.mkdir(parents=True)
    (record / "job.yaml").write_text("name: old\n")
    (record / "events.jsonl").write_text('{"t":1,"kind":"run","job":"old","tasks":["worker-0"]}\n')
    (open_home / "cache" / "inductor").mkdir(parents=True)
    for folder in (record, open_home / "cache", open_home / "runs", open_home):
        folder.chmod(0o755)
    assert oarlock("ps", env=os.environ).returncode == 0
    assert (mode(open_home), mode(open_home / "runs")) == (0o700, 0o700)


def test_a_home_that_holds_other_things_stays_open(open_home: Path) -> None:
    """Somebody may have said OARLOCK_HOME=/tmp, or a folder of a project."""
    (open_home / "runs").mkdir(parents=True)
    (open_home / "data").mkdir()
    (open_home / "cache").mkdir()
    (open_home / "papers").mkdir()
    for folder in (open_home, *open_home.iterdir()):
        folder.chmod(0o755)
    assert runs.all_runs() == []
    assert [mode(open_home / name) for name in ("", "papers")] == [0o755] * 2
    assert [mode(open_home / name) for name in ("runs", "data", "cache")] == [0o700] * 3


def test_all_that_a_run_creates_counts_as_ours(oarlock: Any, open_home: Path, tmp_path: Path) -> None:
    """Otherwise the home of an older version would be taken for one that holds other things."""
    (tmp_path / "train.py").write_text(FILLS_CACHES)
    done = oarlock("run", "train.py", env=os.environ)
    assert done.returncode == 0, done.stderr
    created = {path.name for path in open_home.iterdir()}
    assert {"runs", "cache"} <= created <= runs._OURS
