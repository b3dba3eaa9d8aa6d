"""`delete` against `run --resume`: the run is deleted, or it runs; never both, never neither."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from oarlock.engines.local import local_engine
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT
from tests.support.soaking import moments


def test_never_an_invisible_run(oarlock: Any, home: Path, tmp_path: Path) -> None:
    """The run that is gone on with would train for ever: one whose folder is away could not be stopped."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    (tmp_path / "train.py").write_text(
        "import sys, time\nif len(sys.argv) > 1: sys.exit(1)\ntime.sleep(600)\n"
    )
    assert (
        oarlock("run", "--cold", "--set", "limits.restarts=0", "--name", "kept", "train.py", "x").returncode
        == 1
    )
    for number in range(300):  # the delete takes a while
        (home / "runs" / "kept" / f"file-{number}").touch()
    verdicts = {"deleted": 0, "running": 0}
    for _ in range(moments(3)):
        name = f"run-{source.randrange(10**9)}"
        _copy(home, "kept", name)
        words = {"delete": [SCRIPT, "delete", name], "resume": [SCRIPT, "run", "-d", "--resume", name]}
        order = source.sample(sorted(words), 2)
        started = {verb: _start(words[verb], tmp_path) for verb in order}
        told = {verb: process.communicate(timeout=300)[1] for verb, process in started.items()}
        codes = {verb: process.returncode for verb, process in started.items()}
        run = RunFolder(home / "runs" / name)
        if run.path.exists():
            assert codes == {"delete": 1, "resume": 0}, told
            assert "is running" in told["delete"]
            verdicts["running"] += 1
            local_engine.stop(run, now=True)
        else:
            assert codes["delete"] == 0, told
            assert codes["resume"] in (1, 2), told
            assert re.search("there is no run called|was deleted$", told["resume"].strip()), told
            assert not _agents_of(run.path)
            verdicts["deleted"] += 1
    print(verdicts)


def _copy(home: Path, name: str, new: str) -> None:
    """A run that failed, under another name; what it did is the same."""
    shutil.copytree(home / "runs" / name, home / "runs" / new)
    for file in ("agent.json", "job.yaml"):
        path = home / "runs" / new / file
        path.write_text(
            path.read_text().replace(f"runs/{name}", f"runs/{new}").replace(f'"{name}"', f'"{new}"')
        )
    job = home / "runs" / new / "job.yaml"
    job.write_text(job.read_text().replace("- x\n", "").replace("args:", "args: []"))


def _start(words: list[Any], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, cwd=cwd, env=os.environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def _agents_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in process.read_bytes().split(b"\0"):
                found.append(process.parent.name)
        except OSError:
            pass  # it has ended
    return found
