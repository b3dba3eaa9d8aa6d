"""A pod unpacks what its client sent, and nothing that reaches out of the program's folder."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.agent.pod import unpack_program
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.engines.shared import specs
from oarlock.job.model import Job
from oarlock.program import bundle
from tests.support.folders import write
from tests.support.trees import snapshot

FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = [
    [("../evil", FILE, "")],
    [("/tmp/oarlock-evil", FILE, "")],
    [("link", LINK, "../..")],
    [("link", LINK, "/etc")],
    [("link", LINK, "."), ("link/below", FILE, "")],
    [("here", LINK, "."), ("out", LINK, "here/..")],
    [("hard", HARD, "../mine")],
    [("pipe", tarfile.FIFOTYPE, "")],
]


@pytest.fixture(params=["with filters", "without"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter")
    write(tmp_path, "code/x", "mine")
    return tmp_path


def unpack(place: Path, data: bytes) -> ProgramFolder:
    """In two parts, as ConfigMaps hold them."""
    (place / "code" / "program.tar.gz.000").write_bytes(data[:100])
    (place / "code" / "program.tar.gz.001").write_bytes(data[100:])
    spec = specs.resolve(Job(name="mine", program="train.py"), place, "r1")
    spec = replace(spec, cwd=str(place / "program"), folder=str(place / "code"))
    unpack_program.unpack(spec, place / "code")
    return ProgramFolder.of(spec)


def test_what_was_packed_is_unpacked(place: Path) -> None:
    write(place / "origin", "train.py", "pkg/m.py")
    (place / "origin" / "latest").symlink_to("pkg/m.py")
    (place / "origin" / "pkg" / "all").symlink_to("..")
    unpack(place, bundle.pack(place / "origin").data)
    for path in (place / "origin").rglob("*"):
        path.chmod(0o644 if path.is_file() else 0o755)
    found, sent = snapshot(place / "program"), snapshot(place / "origin")
    assert found.keys() == sent.keys()
    assert (place / "program" / "pkg" / "all" / "latest").read_text() == "x"


def test_what_a_program_has_written_stays_and_is_told_apart(place: Path) -> None:
    write(place / "origin", "train.py", "settings.json", "pkg/m.py")
    data = bundle.pack(place / "origin").data
    program = unpack(place, data)
    assert program.written() == []
    write(place / "program", "out/weights", "pkg/__pycache__/m.pyc")
    (place / "program" / "settings.json").write_text("changed")
    shutil.copy2(place / "program" / "train.py", place / "program" / "out" / "train.py")
    (place / "program" / "latest").symlink_to("out/weights")
    assert unpack(place, data) == program
    assert [file.name for file in program.written()] == ["settings.json", "out/train.py", "out/weights"]


def test_of_two_pods_that_share_a_claim_one_unpacks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "origin", "train.py")
    data = bundle.pack(place / "origin").data

    def overtaken(program: ProgramFolder, names: list[str]) -> None:
        write(place / "program", "train.py", "out/weights")

    monkeypatch.setattr(ProgramFolder, "remember_sent", overtaken)
    unpack(place, data)
    assert sorted(snapshot(place / "program")) == ["out", "out/weights", "train.py"]
    assert not list(place.glob(".program*"))


@pytest.mark.parametrize("members", HOSTILE)
def test_what_reaches_out_is_refused(members: list[tuple[str, bytes, str]], place: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    before = {name: one for name, one in snapshot(place).items() if not name.startswith(("code", "program"))}
    with pytest.raises(OSError, match="does not belong in a folder that was sent"):
        unpack(place, packed.getvalue())
    after = {name: one for name, one in snapshot(place).items() if not name.startswith(("code", "program"))}
    assert after == before
