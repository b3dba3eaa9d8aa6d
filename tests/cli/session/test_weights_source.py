"""Which checkpoint `oarlock run --from` means: that of a run, of its snapshots or of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock.cli.session import weights_source
from oarlock.engines.engine import engine_called
from oarlock.errors import OarlockError, UnknownRun
from oarlock.job.model import Job
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.small_programs import write

Find = Callable[[str], str]

PROGRAM = """
    import numpy as np, oarlock
    state = oarlock.State(params={"w": np.zeros(3)})
    for step in state.steps(3, save=1, keep=1):
        state.params["w"] += 1
"""


@pytest.fixture
def train(oarlock: Command, tmp_path: Path) -> Callable[..., RunFolder]:
    def one(*words: str) -> RunFolder:
        write(tmp_path / "train.py", PROGRAM)
        done = oarlock("run", "--name", "one", *words, "train.py")
        assert done.returncode == 0, done.stdout + done.stderr
        return runs.find("one")

    return one


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    monkeypatch.chdir(tmp_path)
    return lambda asked: weights_source.find(asked, engine_called("local"), Job(program="train.py"))


def test_an_empty_folder_does_not_hide_a_run(
    train: Callable[..., RunFolder], find: Find, tmp_path: Path
) -> None:
    run = train()
    folder = tmp_path / "one"
    folder.mkdir()
    assert find("one") == run.folder("checkpoints")
    with pytest.raises(OarlockError, match=f"{folder} has no checkpoints$"):
        find("./one")
    (folder / "checkpoints").symlink_to(run.folder("checkpoints"))
    assert find("one") == str(folder), "a folder with checkpoints wins"
    (tmp_path / "two").mkdir()
    with pytest.raises(OarlockError, match=f"{tmp_path / 'two'} has no checkpoints$"):
        find("two")
    with pytest.raises(UnknownRun, match="--from takes a run, a folder of checkpoints or a URL"):
        find("three")


def test_snapshots_in_a_folder_have_what_retention_deleted(
    train: Callable[..., RunFolder], find: Find, tmp_path: Path
) -> None:
    run = train("--set", "storage.snapshots=./snaps")
    [left] = Path(run.folder("checkpoints")).glob("step-*")
    assert find("one@3") == f"{left.parent}@3"
    assert find("one") == str(left.parent)
    left.rename(tmp_path / "elsewhere")
    assert find("one@3") == f"{tmp_path / 'snaps' / 'one'}@3"
    assert find("one") == str(tmp_path / "snaps" / "one")
    with pytest.raises(OarlockError, match="has no checkpoints"):
        find("one@7")


def test_a_run_that_writes_to_a_bucket_itself_is_refused(
    oarlock: Command, find: Find, tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "print('done')")
    done = oarlock("run", "--name", "one", "--set", "storage.checkpoints=s3://bucket/ck", "train.py")
    assert done.returncode == 0, done.stderr
    with pytest.raises(OarlockError, match=r"^one writes its checkpoints to s3://bucket/ck itself: --from "):
        find("one")
