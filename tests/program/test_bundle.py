from __future__ import annotations

import io
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from oarlock.errors import JobError
from oarlock.program import agent_zip, bundle, folder_scan, ignore_files, oversize
from oarlock.program.bare_source import without_docstrings
from tests.support.folders import CREDENTIALS, ignore, packed, write, write_credentials


def unpack(packed: bundle.Bundle, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as archive:
        archive.extractall(folder, filter="data")
    return folder


# What unpacks is what was packed.


def test_what_is_unpacked_equals_the_folder(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    write(origin, "train.py", "pkg/__init__.py", "pkg/deep/er/m.py", "a name with spaces", "ünïcode/ŝ.txt")
    write(origin, "long/" + "n" * 200 + "/" + "m" * 200, "empty", text="")
    (origin / "bytes").write_bytes(bytes(range(256)) * 100)
    found = bundle.pack(origin)
    copy = unpack(found, tmp_path / "copy")
    files = {path.relative_to(origin).as_posix() for path in origin.rglob("*") if path.is_file()}
    assert set(found.files) == files
    assert found.size == sum((origin / name).stat().st_size for name in files)
    assert all((copy / name).read_bytes() == (origin / name).read_bytes() for name in files)


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    names = [f"{place}{number}.py" for place in ("", "b/", "a/", "a.b/") for number in range(20)]
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, *names)
    write(two, *reversed(names))
    for path in two.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert bundle.pack(one) == bundle.pack(two)
    assert bundle.pack(one).files == tuple(sorted(names))
    with tarfile.open(fileobj=io.BytesIO(bundle.pack(one).data)) as archive:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in archive} == {(0, 0, 0, "", "")}
    assert bundle.pack(one).data[4:8] == bytes(4)  # gzip's own time


def test_a_script_stays_executable(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    write(origin, "run.sh", "train.py")
    (origin / "run.sh").chmod(0o750)
    copy = unpack(bundle.pack(origin), tmp_path / "copy")
    assert os.access(copy / "run.sh", os.X_OK)
    assert (copy / "train.py").stat().st_mode & 0o111 == 0


def test_an_empty_folder_is_an_archive_of_nothing(tmp_path: Path) -> None:
    found = bundle.pack(tmp_path)
    assert (found.files, found.size) == ((), 0)
    assert not list(unpack(found, tmp_path / "copy").glob("*"))


def test_a_name_that_is_not_utf_8_travels(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    name = os.fsdecode(b"caf\xe9.txt")
    write(origin, name, "café.txt")
    assert name in bundle.pack(origin).files
    assert sorted(
        map(bytes, (Path(path.name) for path in unpack(bundle.pack(origin), tmp_path / "copy").iterdir()))
    ) == [
        "café.txt".encode(),
        b"caf\xe9.txt",
    ]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    for name in ("nothing", "train.py"):
        with pytest.raises(JobError, match=f"{name}: no such folder"):
            bundle.pack(tmp_path / name)


# What stays behind.


def test_what_no_program_needs_never_travels(tmp_path: Path) -> None:
    ignore(tmp_path, "!*", "!*/", file=".oarlockignore")
    write(tmp_path, ".git/config", "pkg/__pycache__/m.pyc", "old.pyc", ".venv/bin/python", ".DS_Store")
    write(tmp_path, "pkg/.ipynb_checkpoints/n.ipynb", ".mypy_cache/x", ".ruff_cache/x", ".pytest_cache/x")
    write(tmp_path, "a/venv/pyvenv.cfg", "a/venv/lib/x.py", "b/venv/mine.py", "train.py")
    assert packed(tmp_path) == {"b/venv/mine.py", "train.py"}


def test_sockets_and_pipes_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train.py")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert packed(tmp_path) == {"train.py"}


def test_an_ignored_folder_is_never_looked_into(tmp_path: Path) -> None:
    ignore(tmp_path, "/data/")
    write(tmp_path, "train.py", *(f"data/{number}/x" for number in range(3)))
    looked: list[str] = []

    def listen(event: str, details: tuple[object, ...]) -> None:
        if event in ("os.scandir", "os.listdir", "open") and listening:
            looked.append(str(details[0]))

    listening = True
    sys.addaudithook(listen)
    try:
        assert packed(tmp_path) == {"train.py"}
    finally:
        listening = False
    assert str(tmp_path) in {path.rstrip("/") for path in looked}
    assert not [path for path in looked if "/data" in path]


# Links.


def test_a_link_travels_with_its_target(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    write(origin, "configs/a.yaml", "ignored/b.yaml", "pkg/m.py", ".hidden")
    ignore(origin, "/ignored")
    links = {
        "now.yaml": "configs/a.yaml",
        "pkg/up.yaml": "../configs/a.yaml",
        "pkg/full.yaml": str(origin / "configs/a.yaml"),
        "pkg/around.yaml": "../../origin/configs/a.yaml",
        "pkg/twice.yaml": "up.yaml",
        "folder": "configs",
        "all": ".",
        "seen": ".hidden",
        "left.yaml": "ignored/b.yaml",
        "left": "ignored",
        "nowhere": "nothing",
        "circle": "circle",
    }
    for name, target in links.items():
        (origin / name).symlink_to(target)
    found = bundle.pack(origin)
    assert set(links) - set(found.files) == {"left.yaml", "left", "nowhere", "circle"}
    copy = unpack(found, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(origin)
    for name in set(found.files) & set(links):
        assert (copy / name).is_symlink()
        assert (copy / name).resolve().is_relative_to(copy)
        assert (copy / name).exists()
    assert (copy / "pkg/twice.yaml").read_text() == (copy / "folder/a.yaml").read_text() == "x"


@pytest.mark.parametrize("target", ["big/data.npz", "big", "link"])
def test_a_link_that_leads_out_is_refused_until_it_is_ignored(target: str, tmp_path: Path) -> None:
    write(tmp_path, "big/data.npz", "origin/train.py", "origin/sub/m.py")
    (tmp_path / "link").symlink_to("big/data.npz")
    link = tmp_path / "origin" / "sub" / "data"
    link.symlink_to(f"../../{target}")
    with pytest.raises(JobError, match=r"sub/data: a link to .*/big.*, outside of the program's") as refused:
        bundle.pack(tmp_path / "origin")
    line = str(refused.value).partition("add the line ")[2].split()[0]
    ignore(tmp_path / "origin", line, file=".oarlockignore")
    assert packed(tmp_path / "origin") == {"train.py", "sub/m.py"}


# Credentials.

ORDINARY = ("train.py", "id_tables.py", "loss_history/1.csv", ".config/mine.yaml", "env.txt", "keys.json")


def content(found: bundle.Bundle) -> bytes:
    return zlib.decompress(found.data, wbits=31)


def test_credentials_stay_behind_and_are_named(tmp_path: Path) -> None:
    write_credentials(tmp_path)
    write(tmp_path, *ORDINARY)
    found = bundle.pack(tmp_path)
    assert set(found.files) == set(ORDINARY)
    assert b"canary-4711" not in content(found)
    for name in CREDENTIALS:
        assert [one for one in found.withheld if one == name or (one[-1] == "/" and name.startswith(one))], (
            name
        )
        assert folder_scan.left_behind(tmp_path, name) == ignore_files.CREDENTIAL


@pytest.mark.parametrize(
    "lines", [["!*"], ["!*", "!*/", "!**", "!*.*"], ["!/**/*"], ["!.ssh/*", "!*.pem", "!id_*"]]
)
def test_no_wildcard_takes_credentials_along(lines: list[str], tmp_path: Path) -> None:
    write_credentials(tmp_path)
    ignore(tmp_path, *lines, file=".oarlockignore")
    assert b"canary-4711" not in content(bundle.pack(tmp_path))


def test_oarlockignore_takes_credentials_along_by_name(tmp_path: Path) -> None:
    write_credentials(tmp_path)
    lines = ["!.env", "!/certs/server.pem", "!.ssh/known_hosts", "!.kube/", "!cloud.json", "!deploy", "!*"]
    ignore(tmp_path, *lines, file=".oarlockignore")
    taken = {".env", "certs/server.pem", ".ssh/known_hosts", ".kube/config", "cloud.json", "deploy"}
    assert packed(tmp_path) == taken
    ignore(tmp_path, *lines, "deploy", ".env", file=".oarlockignore")
    assert packed(tmp_path) == taken - {"deploy", ".env"}


def test_a_link_to_a_credential_stays_behind_with_it(tmp_path: Path) -> None:
    write(tmp_path, ".ssh/id_rsa", "train.py")
    (tmp_path / "readme.txt").symlink_to(".ssh/id_rsa")
    assert packed(tmp_path) == {"train.py"}


def test_homes_and_records_do_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "people" / "me"))
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "project" / "records"))
    write(
        tmp_path, "people/me/train.py", "project/train.py", "project/records/runs/r1/token", "link/train.py"
    )
    (tmp_path / "home").symlink_to("people/me")
    refused = {
        "/": "a folder that .* is in",
        "people": "a folder that .* is in",
        "people/me": "your home folder",
        "home": "your home folder",
        "project/records": "where Oarlock keeps its records",
        "project/records/runs/r1": "where Oarlock keeps its records",
    }
    for name, why in refused.items():
        with pytest.raises(JobError, match=f"{why}: put the program into a folder of its own"):
            bundle.pack(tmp_path / name)
    assert bundle.pack(tmp_path / "project").files == ("train.py",)
    assert bundle.pack(tmp_path / "project").withheld == ("records/",)


def test_why_something_was_left_behind_is_known(tmp_path: Path) -> None:
    ignore(tmp_path, "# data", "*.bin", "/out/")
    ignore(tmp_path / "data", "raw", file=".oarlockignore")
    write(tmp_path, "train.py", "data/x/train.bin", "out/model", "data/raw/1", "pkg/__pycache__/m.txt")
    why = {
        "data/x/train.bin": f"line 2 of {tmp_path}/.gitignore (*.bin) excludes it",
        "out/model": f"line 3 of {tmp_path}/.gitignore (/out/) excludes it",
        "data/raw/1": f"line 1 of {tmp_path}/data/.oarlockignore (raw) excludes it",
        "pkg/__pycache__/m.txt": "__pycache__ never travels",
        "train.py": None,
        "nothing.bin": None,
    }
    assert {name: folder_scan.left_behind(tmp_path, name) for name in why} == why


# What cannot be read, and what does not stand still.


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder that somebody without rights may enter: root can read everything."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        write(Path(name), "secret/key", "train.py", "mine/train.py")
        (Path(name) / "mine" / "link").symlink_to("../secret/key")
        if is_root:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
            (Path(name) / "secret").chmod(0o700)


def _forbid(path: Path) -> None:
    me = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
    path.chmod(0)
    os.seteuid(me)


@pytest.mark.parametrize("name", ["train.py", "secret"])
def test_what_cannot_be_read_is_named(name: str, as_nobody: Path) -> None:
    _forbid(as_nobody / name)
    with pytest.raises(JobError, match=rf"/{name}: cannot be read: Permission denied; .*\.oarlockignore"):
        bundle.pack(as_nobody)


def test_a_link_to_what_cannot_be_read_is_named(as_nobody: Path) -> None:
    _forbid(as_nobody / "secret")
    with pytest.raises(JobError, match="mine/link: cannot be read: Permission denied"):
        bundle.pack(as_nobody / "mine")


def test_a_file_that_fails_while_it_is_read_is_named(tmp_path: Path) -> None:
    # A regular file whose first byte is an I/O error.
    memory = folder_scan.FolderEntry("memory", "/proc/self/mem")
    with (
        tarfile.open(tmp_path / "archive", "w") as archive,
        pytest.raises(JobError, match="mem: cannot be read: Input/output error"),
    ):
        bundle._add(archive, memory)


def test_files_that_change_after_they_were_found_travel_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = tmp_path / "origin"
    write(origin, "grows", "shrinks", "vanishes", "becomes a pipe", "becomes a folder", "stays", text="12345")
    settle = folder_scan._settle_links

    def change(folder: Path, found: list[folder_scan.FolderEntry]) -> list[folder_scan.FolderEntry]:
        write(origin, "grows", text="1234567890")
        write(origin, "shrinks", text="1")
        for name in ("vanishes", "becomes a pipe", "becomes a folder"):
            (origin / name).unlink()
        os.mkfifo(origin / "becomes a pipe")
        (origin / "becomes a folder").mkdir()
        return settle(folder, found)

    monkeypatch.setattr(folder_scan, "_settle_links", change)
    found = bundle.pack(origin)
    copy = unpack(found, tmp_path / "copy")
    assert {path.name: path.read_text() for path in copy.iterdir()} == {
        "grows": "1234567890",
        "shrinks": "1",
        "stays": "12345",
    }
    assert set(found.files) == {"grows", "shrinks", "stays"}
    assert found.size == 16


def test_a_log_that_is_written_all_the_time_travels(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(bytes(bundle.LIMIT + 1))
    writer = subprocess.Popen(["sh", "-c", f"while :; do echo more >> {log}; done"])
    try:
        for _ in range(5):
            found = bundle.pack(tmp_path)
            assert found.files == ("train.log",)
            with tarfile.open(fileobj=io.BytesIO(found.data)) as archive:
                assert archive.getmembers()[0].size == found.size
    finally:
        writer.kill()
        writer.wait()


# At most so much.


def test_too_much_says_what_is_big_and_what_to_do(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(9_000_000)
    write(tmp_path, "train.py", "pkg/m.py")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.npz").write_bytes(noise)
    (tmp_path / "weights").mkdir()
    for number in range(100):
        (tmp_path / "weights" / f"{number}.bin").write_bytes(noise[:20_000])
    with pytest.raises(JobError) as refused:
        bundle.pack(tmp_path)
    assert str(refused.value).splitlines() == [
        f"the program's folder {tmp_path} is 11 MB in 103 files, more than 8 MiB even when compressed: "
        "at most that travels to a cluster",
        "  9.0 MB  data/train.npz",
        "  2.0 MB  weights/",
        "list what the program does not need in .oarlockignore, "
        "or keep data in a volume or a bucket (storage.data)",
    ]


def test_once_it_is_too_much_the_rest_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(random.Random(0).randbytes(9_000_000))
    with (tmp_path / "b.bin").open("wb") as sparse:
        sparse.truncate(10**13)
    with pytest.raises(JobError, match=r"is 10000 GB in 2 files") as refused:
        bundle.pack(tmp_path)
    assert "b.bin" in str(refused.value)


def test_the_limit_is_on_what_is_sent(tmp_path: Path) -> None:
    """Ten times the limit in zeros travels; the limit itself in noise does not."""
    (tmp_path / "zeros").write_bytes(bytes(10 * bundle.LIMIT))
    found = bundle.pack(tmp_path)
    assert found.size == 10 * bundle.LIMIT
    assert len(found.data) < bundle.LIMIT / 10
    (tmp_path / "zeros").write_bytes(random.Random(0).randbytes(bundle.LIMIT - 100_000))
    assert bundle.LIMIT - 100_000 < len(bundle.pack(tmp_path).data) <= bundle.LIMIT
    (tmp_path / "zeros").write_bytes(random.Random(0).randbytes(bundle.LIMIT))
    with pytest.raises(JobError, match="1 file, more than"):
        bundle.pack(tmp_path)


def test_at_most_five_places_are_named(tmp_path: Path) -> None:
    sizes = {f"{name}/deep/{part}": 10 for name in "abcdefgh" for part in "xyz"}
    assert [name for name, _ in oversize.largest_parts(sizes)] == [
        "a/deep/x",
        "a/deep/y",
        "a/deep/z",
        "b/deep/x",
        "b/deep/y",
    ]
    many = {f"many/{number}": 10 for number in range(100)} | {"tiny": 1, "some/one": 500}
    assert oversize.largest_parts(many) == [("many/", 1000), ("some/one", 500)]
    crumbs = {f"{number:03}": 10 for number in range(200)}
    assert oversize.largest_parts(crumbs) == [(f"{number:03}", 10) for number in range(5)]


# What travels of Oarlock.


@pytest.mark.parametrize(
    ("pack", "rooms", "module"),
    [
        (agent_zip.pack, agent_zip.TRAVELS, "oarlock.agent.pod.main"),
        (agent_zip.pack_server, agent_zip.SERVES, "oarlock.serving.pod_start"),
    ],
)
def test_an_archive_holds_what_travels_and_nothing_else(
    pack: Callable[[], bytes], rooms: Sequence[str], module: str
) -> None:
    source = Path(agent_zip.__file__).parents[1]
    found = [source / "__init__.py", *(path for room in rooms for path in (source / room).rglob("*"))]
    files = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    with zipfile.ZipFile(io.BytesIO(pack())) as archive:
        assert archive.namelist() == ["__main__.py", "modules.zip"]
        assert archive.read("__main__.py").decode() == agent_zip.boot(module)
        how = [entry.compress_type for entry in archive.infolist()]
        assert how == [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2]
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
        inside = io.BytesIO(archive.read("modules.zip"))
    with zipfile.ZipFile(inside) as modules:
        assert modules.namelist() == sorted(f"oarlock/{path.relative_to(source)}" for path in files)
        for path in files:
            text = path.read_bytes()
            expected = without_docstrings(text) if path.suffix == ".py" else text
            assert modules.read(f"oarlock/{path.relative_to(source)}") == expected
        assert {entry.date_time[0] for entry in modules.infolist()} == {1980}


def test_what_was_packed_is_kept_until_a_file_of_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_zip, "_PACKAGE", tmp_path / "oarlock")
    monkeypatch.setattr(agent_zip, "_KEPT", tmp_path / "kept")
    write(tmp_path / "oarlock", "__init__.py", "agent/main.py", "agent/__pycache__/main.pyc", text='"""a"""')
    (tmp_path / "kept").mkdir()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    packed = agent_zip.pack()
    assert not list((tmp_path / "kept").iterdir()), "who wants no files beside modules gets none"

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert agent_zip.pack() == packed
    [first] = (tmp_path / "kept").iterdir()
    first.write_bytes(b"as it was kept")
    assert agent_zip.pack() == b"as it was kept"

    (tmp_path / "oarlock" / "agent" / "main.py").write_text("b = 1")
    assert agent_zip.pack() not in (packed, b"as it was kept")
    [second] = (tmp_path / "kept").iterdir()
    assert second != first


def test_the_agents_modules_can_be_imported_with_nothing_installed(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(agent_zip.pack())) as archive:
        archive.extract("modules.zip", tmp_path)
    code = (
        "import sys; sys.path.insert(0, 'modules.zip'); import oarlock.agent.net.loop as m; print(m.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "modules.zip" in done.stdout
