"""What a pod sends stays inside the folder it is unpacked into, and what changed meanwhile is told."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.engines.kubernetes import sending, unpacking
from oarlock.errors import OarlockError


def _tar(*members: tuple[str, bytes, str]) -> Iterator[bytes]:
    """(name, type, content or target)"""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text
            archive.addfile(member, io.BytesIO(text.encode()))
    data = packed.getvalue()
    yield from (data[at : at + 700] for at in range(0, len(data), 700))


FILE, LINK, HARD, FIFO = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", FILE, "x")],
        [("model/../../evil", FILE, "x")],
        [("/evil", FILE, "x")],
        [("model/link", LINK, "../../evil"), ("model/link/below", FILE, "x")],
        [("link", LINK, "..")],
        [("link", LINK, "/etc/passwd")],
        [("here", LINK, "."), ("out", LINK, "here/..")],
        [("file", FILE, "x"), ("hard", HARD, "/etc/passwd")],
        [("pipe", FIFO, "")],
        [("twice", FILE, "x"), ("twice", FILE, "y")],
    ],
)
def test_nothing_leads_out_of_the_folder(members: list[tuple[str, bytes, str]], tmp_path: Path) -> None:
    inside = tmp_path / "a" / "inside"
    inside.mkdir(parents=True)
    with pytest.raises(OarlockError, match="refused what the pod sent: "):
        unpacking.unpack(_tar(*members), inside)
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "a" / "evil").exists()


def test_links_inside_are_kept(tmp_path: Path) -> None:
    members = [("m/latest", LINK, "sub/file"), ("m/sub/file", FILE, "x"), ("m/up", LINK, "../m")]
    assert unpacking.unpack(_tar(*members), tmp_path) == (3, 1)
    assert (tmp_path / "m" / "latest").read_text() == "x"


def test_half_an_archive_is_none(tmp_path: Path) -> None:
    whole = b"".join(_tar(("file", FILE, "x" * 5000)))
    with pytest.raises(OarlockError, match="is no archive"):
        unpacking.unpack(iter([whole[:2000]]), tmp_path)


def test_files_that_change_while_they_are_read_are_told(tmp_path: Path) -> None:
    """The sender, as a pod runs it, while somebody appends to a file and takes another away."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a-large").write_bytes(bytes(30_000_000))
    (source / "b-growing").write_text("1")
    (source / "c-going").write_text("1")
    words = [sys.executable, "-c", Path(sending.__file__).read_text(), json.dumps([["model", str(source)]])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sender:
        assert sender.stdout is not None
        assert sender.stderr is not None
        assert json.loads(sender.stderr.readline())["total"] == 30_000_002
        first = sender.stdout.read(1 << 16)  # of the large one; then it waits for us to read on
        (source / "c-going").unlink()
        (source / "a-large").write_bytes(b"short")
        rest = iter(lambda: sender.stdout.read(1 << 16), b"")  # type: ignore[union-attr]
        files, size = unpacking.unpack(itertools.chain([first], rest), tmp_path / "target")
        told = json.loads(sender.stderr.read())
    assert (files, told["files"]) == (2, 2)
    assert told["changed"] == ["model/a-large", "model/c-going"]
    assert size == 30_000_001
