"""What a pod sends stays inside the folder it is unpacked into, what is refused leaves nothing, and what
changed meanwhile is told."""

from __future__ import annotations

import io
import itertools
import json
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.kubernetes.api import pod_exec
from oarlock.engines.kubernetes.claims import pull_claims, tar_receiver, tar_sender
from oarlock.engines.shared import specs
from oarlock.engines.shared.pull_result import Pulled
from oarlock.errors import OarlockError
from oarlock.job.model import Job
from oarlock.records.run_folder import RunFolder
from tests.support.trees import snapshot

FILE, LINK, HARD, FIFO = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE
FOLDER, DEVICE, SPARSE = tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE
PLENTY = 1 << 30

Member = tuple[str, bytes, str]


def _tar(*members: Member, **more: Any) -> bytes:
    """(name, type, content or target)"""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == FILE:
                member.size = len(text)
            else:
                member.linkname = text
            for key, value in more.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def _pax(text: str, **headers: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("model/file")
        member.size, member.pax_headers = len(text), headers
        archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def _sparse(real: int) -> bytes:
    """As GNU tar writes a file that is all hole."""
    header = bytearray(_tar(("model/hole", SPARSE, ""))[:512])
    header[483:495] = b"%011o\0" % real
    header[386:410] = b"%011o\0%011o\0" % (real, 0)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(10240)


HOSTILE = {
    "up": _tar(("../evil", FILE, "x")),
    "up later": _tar(("model/../../evil", FILE, "x")),
    "absolute": _tar(("/evil", FILE, "x")),
    "dot": _tar(("model/./x", FILE, "x")),
    "no name": _tar(("", FILE, "x")),
    "a long part": _tar(("model/" + "n" * 256, FILE, "x")),
    "a long name": _tar(("model" + "/n" * 600, FILE, "x")),
    "a deep name": _tar(("model" + "/n" * 100, FILE, "x")),
    "a name of megabytes": _tar(("n" * 3_000_000, FILE, "x")),
    "through a link": _tar(("model/link", LINK, "../../evil"), ("model/link/below", FILE, "x")),
    "below a link": _tar(("model/link", LINK, "sub"), ("model/link/below", FILE, "x")),
    # The first leads to a home, the second is made through it: a shell reads that file.
    "two links": _tar(
        ("model/evil.sh", FILE, "x"),
        ("model/a", LINK, "../../../.."),
        ("model/a/.bash_aliases", LINK, ".oarlock/runs/r1/model/evil.sh"),
    ),
    "a link below a link": _tar(("model/a", LINK, "sub"), ("model/a/b", LINK, "x")),
    "a link up": _tar(("model/link", LINK, "..")),
    "a link beside": _tar(("model/link", LINK, "../agent.json")),
    "a link at the top": _tar(("model", LINK, "leader")),
    "a link to the root": _tar(("model/link", LINK, "/etc/passwd")),
    "a link by way of another": _tar(("model/here", LINK, "."), ("model/out", LINK, "here/..")),
    "a hard link": _tar(("model/file", FILE, "x"), ("model/hard", HARD, "/etc/passwd")),
    "a hard link inside": _tar(("model/file", FILE, "x"), ("model/hard", HARD, "model/file")),
    "a pipe": _tar(("model/pipe", FIFO, "")),
    "a device": _tar(("model/null", DEVICE, "")),
    "a file twice": _tar(("model/twice", FILE, "x"), ("model/twice", FILE, "y")),
    "a link twice": _tar(("model/twice", LINK, "x"), ("model/twice", LINK, "y")),
    "a file and a link": _tar(("model/twice", LINK, "x"), ("model/twice", FILE, "y")),
    "a file and a folder": _tar(("model/twice", FILE, "x"), ("model/twice/below", FILE, "y")),
    "a folder and a file": _tar(("model/twice/below", FILE, "x"), ("model/twice", FILE, "y")),
    "sparse": _sparse(300),
    "sparse as PAX has it": _pax("x", **{"GNU.sparse.size": "300", "GNU.sparse.map": "0,1"}),
    "a size in PAX": _pax("x", size="300000000000"),
    "more than announced": _tar(("model/a", FILE, "x" * 900), ("model/large", FILE, "x" * 200)),
    "a folder with bytes": _tar(("model", FOLDER, "x" * 512), size=512, linkname=""),
    "a negative size": _tar(("model/file", FILE, "x")).replace(b"00000000001\0", b"\xff" * 12, 1),
}


def _fresh(folder: Path) -> Path:
    """Where somebody pulls to, in a home with what is somebody's own."""
    place = folder / "home" / ".oarlock" / "runs" / "r1"
    place.mkdir(parents=True)
    (place / "agent.json").write_text("mine")
    (folder / "home" / ".profile").write_text("mine")
    return place / "new"


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_refused_leaves_nothing(data: bytes, tmp_path: Path) -> None:
    place = _fresh(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(OarlockError, match=r"refused what the pod sent: |is not an archive"):
        _unpack(data, place, most=1000)
    assert snapshot(tmp_path) == before


def _unpack(data: bytes, place: Path, most: int = PLENTY) -> tuple[int, int]:
    pieces = (data[at : at + 700] for at in range(0, len(data), 700))
    return tar_receiver.unpack(tar_receiver.Stream(pieces), place, most)


def test_links_inside_are_kept(tmp_path: Path) -> None:
    members = [("m/latest", LINK, "sub/file"), ("m/sub/file", FILE, "x"), ("m/sub/up", LINK, "..")]
    assert _unpack(_tar(*members), tmp_path / "new") == (3, 1)
    assert (tmp_path / "new" / "m" / "sub" / "up" / "latest").read_text() == "x"


def test_a_time_that_no_clock_shows_is_no_reason(tmp_path: Path) -> None:
    assert _unpack(_tar(("m", FILE, "x"), mtime=1 << 70), tmp_path / "new") == (1, 1)


def test_a_folder_that_is_there_is_not_unpacked_into(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "new").symlink_to("elsewhere")
    before = snapshot(tmp_path)
    with pytest.raises(FileExistsError):
        _unpack(_tar(("m", FILE, "x")), tmp_path / "new")
    assert snapshot(tmp_path) == before


# The whole way, from a process that sends to the folder that was pulled before.


class _Process:
    """As exec.Command, but on this machine."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.code = -1
        self.stderr = b""

    def output(self) -> Generator[bytes]:
        with subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sender:
            try:
                assert sender.stdout
                assert sender.stderr
                yield from iter(partial(os.read, sender.stdout.fileno(), 1 << 16), b"")
                self.stderr = sender.stderr.read()
                self.code = sender.wait()
            finally:
                sender.kill()


@pytest.fixture
def pulled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of a run whose model was pulled before. Its pod is this machine."""
    record = tmp_path / "home" / "runs" / "r1"
    source = tmp_path / "source"
    for folder in (source, record / "model", record / "leader"):
        folder.mkdir(parents=True)
        (folder / "weights").write_text(folder.name)
    spec = specs.resolve(Job(name="mine", program="train.py"), tmp_path, "r1")
    spec.folders.update(dict.fromkeys(("model", "logs", "checkpoints", "data"), str(source)))
    (record / "agent.json").write_text(spec.to_json())
    monkeypatch.setattr(pull_claims, "leader", lambda *_: "pod")
    monkeypatch.setattr(pod_exec, "Command", lambda _, __, words: _Process(words))
    return record


def _pull(record: Path) -> Pulled:
    return pull_claims.fetch(None, RunFolder(record), ["model"], record, lambda *_: None, replaces=True)  # type: ignore[arg-type]


SAYS = "import sys; sys.stdout.buffer.write({!r}); sys.stdout.flush(); print({!r}, file=sys.stderr)"
GOOD = _tar(("model/x", FILE, "x"))
LARGE = GOOD[:124] + b"%011o\0" % 70_000_000 + GOOD[136:]
LARGE = LARGE[:148] + b"%06o\0 " % (sum(LARGE[:148]) + 8 * 32 + sum(LARGE[156:512])) + LARGE[156:]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (SAYS.format(b'{"total": 2}\n' + HOSTILE["two links"], "{}"), "refused what the pod sent: model/a"),
        (SAYS.format(b'{"total": 2}\n' + HOSTILE["sparse"], "{}"), "model/hole: neither a plain file"),
        (
            SAYS.format(b'{"total": 2}\n' + LARGE, "{}"),
            "more than the pod",
        ),
        (SAYS.format(b'{"total": 1000000000000000000}\n' + GOOD, "{}"), "of space left"),
        (SAYS.format(b'{"total": -1}\n' + GOOD, "{}"), "not an archive that Oarlock wrote"),
        (SAYS.format(b"[" * 60_000 + b"\n" + GOOD, "{}"), "not an archive that Oarlock wrote"),
        (SAYS.format(b'{"total": 1}\n' + GOOD, "[]"), "not an archive that Oarlock wrote"),
        (
            SAYS.format(b'{"total": 1}\n' + GOOD, '{"files": "1", "changed": [], "skipped": []}'),
            "that Oarlock wrote",
        ),
        (SAYS.format(b'{"total": 1}\n' + GOOD, '{"files": 7, "changed": [], "skipped": []}'), "7 files were"),
        ("while True: print('x' * 60000)", "not an archive that Oarlock wrote"),
        (SAYS.format(b'{"total": 1}\n' + GOOD, "") + "\nwhile True: print('x' * 60000)", "does not stop"),
        ("import sys; sys.exit('no such folder')", "could not send it .exit code 1.: no such folder"),
    ],
)
def test_a_pull_that_is_refused_leaves_what_was_pulled_before(
    script: str, complaint: str, pulled_before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text(script)
    monkeypatch.setattr(tar_sender, "__file__", str(tmp_path / "hostile.py"))
    before = snapshot(tmp_path)
    with pytest.raises(OarlockError, match=complaint):
        _pull(pulled_before)
    assert snapshot(tmp_path) == before


def test_a_pull_replaces_what_was_pulled_before(pulled_before: Path) -> None:
    assert _pull(pulled_before).files == 1
    assert (pulled_before / "model" / "weights").read_text() == "source"


def test_a_link_where_the_model_goes_is_replaced_and_not_followed(
    pulled_before: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (pulled_before / "model").rename(tmp_path / "elsewhere" / "model")
    (pulled_before / "model").symlink_to(tmp_path / "elsewhere" / "model")
    before = snapshot(tmp_path / "elsewhere")
    _pull(pulled_before)
    assert not (pulled_before / "model").is_symlink()
    assert snapshot(tmp_path / "elsewhere") == before


def test_a_disk_that_is_full_leaves_what_was_pulled_before(pulled_before: Path, tmp_path: Path) -> None:
    """In a process that may write little: its fifth megabyte is refused, as on a full disk."""
    (tmp_path / "source" / "weights").write_bytes(bytes(5_000_000))
    before = snapshot(tmp_path)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
            _pull(pulled_before)
        except OarlockError as problem:
            code = 0 if "cannot be written: File too large; nothing in it was changed" in str(problem) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert snapshot(tmp_path) == before


def test_half_an_archive_is_none(tmp_path: Path) -> None:
    with pytest.raises(OarlockError, match="is not an archive"):
        _unpack(_tar(("file", FILE, "x" * 5000))[:2000], tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_files_that_change_while_they_are_read_are_told(tmp_path: Path) -> None:
    """The sender, as a pod runs it, while somebody appends to a file and takes another away."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a-large").write_bytes(bytes(30_000_000))
    (source / "b-growing").write_text("1")
    (source / "c-going").write_text("1")
    words = [
        sys.executable,
        "-c",
        Path(tar_sender.__file__).read_text(),
        json.dumps([["model", str(source)]]),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sender:
        assert sender.stdout is not None
        assert sender.stderr is not None
        assert json.loads(sender.stdout.readline())["total"] == 30_000_002
        first = sender.stdout.read(1 << 16)  # of the large one; then it waits for us to read on
        (source / "c-going").unlink()
        (source / "a-large").write_bytes(b"short")
        rest = iter(lambda: sender.stdout.read(1 << 16), b"")  # type: ignore[union-attr]
        stream = tar_receiver.Stream(itertools.chain([first], rest))
        files, size = tar_receiver.unpack(stream, tmp_path / "target", PLENTY)
        told = json.loads(sender.stderr.read())
    assert (files, told["files"]) == (2, 2)
    assert told["changed"] == ["model/a-large", "model/c-going"]
    assert size == 30_000_001
