"""A pod unpacks what its client sent, and nothing that reaches out of the program's folder."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.agent.pod import main
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
    monkeypatch.setattr(main, "CODE", tmp_path / "code")
    return tmp_path


def unpack(place: Path, data: bytes) -> None:
    """In two parts, as ConfigMaps hold them."""
    (place / "code" / "program.tar.gz.000").write_bytes(data[:100])
    (place / "code" / "program.tar.gz.001").write_bytes(data[100:])
    spec = specs.resolve(Job(name="mine", program="train.py"), place, "r1")
    main._unpack(replace(spec, cwd=str(place / "program")))


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


@pytest.mark.parametrize("members", HOSTILE)
def test_what_reaches_out_is_refused(members: list[tuple[str, bytes, str]], place: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    before = {name: one for name, one in snapshot(place).items() if not name.startswith(("code", "program"))}
    with pytest.raises(OSError, match="does not belong in a program's folder"):
        unpack(place, packed.getvalue())
    after = {name: one for name, one in snapshot(place).items() if not name.startswith(("code", "program"))}
    assert after == before
