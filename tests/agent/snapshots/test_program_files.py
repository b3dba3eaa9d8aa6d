"""What a leader's program writes beside itself reaches the machines that do not see its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.agent.net.loop import Loop
from oarlock.agent.snapshots import program_files
from oarlock.agent.snapshots.program_files import KeptFiles, ProgramFolder
from oarlock.agent.snapshots.transfer import Getting
from tests.support.folders import write
from tests.support.members import Leader, leading
from tests.support.transfers import resuming_from
from tests.support.trees import snapshot


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with leading(tmp_path / "leader", machines=2) as found:
        yield found


@pytest.fixture
def theirs(leader: Leader) -> ProgramFolder:
    """The leader's, as it was sent."""
    found = ProgramFolder.of(leader.spec)
    found.remember_sent(["program.py"])
    os.utime(found.folder / "program.py", ns=(0, 0))
    return found


@pytest.fixture
def ours(tmp_path: Path) -> ProgramFolder:
    for name in ("ours", "record"):
        (tmp_path / name).mkdir()
    return ProgramFolder(tmp_path / "ours", tmp_path / "record")


def get(leader: Leader, ours: ProgramFolder, version: str, patience: float = 30) -> str | None:
    loop, answers = Loop(), list["str | None"]()
    getting = Getting(loop, leader.address, leader.token, str(ours.record / "ckpt"), patience, ours)
    gang = resuming_from([], version)
    assert not getting.has(gang)
    loop.after("patience", 90, lambda: answers.append("no answer"))
    getting.get(gang, answers.append)
    while not answers:
        loop.turn()
    assert getting.has(gang) == (answers[0] is None)
    return answers[0]


def test_files_arrive_once_with_their_names_and_times(
    leader: Leader, theirs: ProgramFolder, ours: ProgramFolder
) -> None:
    write(theirs.folder, "out/deep/näme with space", "out/.hidden")
    (theirs.folder / "out" / "large").write_bytes(b"x" * 3_000_000)
    write(ours.folder, "mine", "out/large")
    assert get(leader, ours, "v1") is None
    for name in ("out/deep/näme with space", "out/.hidden", "out/large"):
        assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes()
        assert (ours.folder / name).stat().st_mtime_ns == (theirs.folder / name).stat().st_mtime_ns
    assert (ours.folder / "mine").exists()
    before = snapshot(ours.folder)
    (theirs.folder / "out" / ".hidden").write_text("changed")
    assert get(leader, ours, "v2") is None
    after = snapshot(ours.folder)
    assert {name for name in after if after[name] != before.get(name)} >= {"out/.hidden"}
    assert not any(file.name.startswith(".fetching") for file in ours.record.iterdir())


def test_a_file_that_cannot_be_put_here_is_said(
    leader: Leader, theirs: ProgramFolder, ours: ProgramFolder
) -> None:
    write(theirs.folder, "out")
    write(ours.folder, "out/mine")
    trouble = get(leader, ours, "v1", patience=0)
    assert trouble is not None
    assert trouble.startswith("the files beside the leader's program did not arrive: ")


def test_what_is_kept_lost_or_too_much_is_said_in_a_line(
    leader: Leader, theirs: ProgramFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    kept = KeptFiles(replace(leader.spec, claim="leader"), said.append)
    lost = KeptFiles(leader.spec, said.append)
    kept.say_what_is_kept()
    assert (said, kept.version()) == ([], "")
    write(theirs.folder, "out/small")
    (theirs.folder / "out" / "weights").write_bytes(bytes(2_500_000))
    version = kept.version()
    assert version
    kept.say_what_is_kept()
    lost.say_what_is_kept()
    what = "2 files, 2.5 MB that the program wrote beside itself, out/weights among them"
    assert said == [
        f"kept: {what}; oarlock pull led --what files",
        f"lost with the pod: {what}; a claim keeps them (kubernetes.claim)",
    ]
    (theirs.folder / "out" / "small").write_text("changed")
    assert kept.version() not in ("", version)
    monkeypatch.setattr(program_files, "MOST", 1)
    assert (kept.version(), kept.version()) == ("", "")
    assert said[2:] == [
        "what the program wrote beside itself is not copied to other pods: it is too much "
        "(over 1 files, 2.5 MB); set kubernetes.claim.shared"
    ]
