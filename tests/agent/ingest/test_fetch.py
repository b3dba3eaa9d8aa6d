"""Sources by path and by URL, from servers that break in every way that a download can."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest

from oarlock.agent.ingest.fetch import FetchError, IngestSource, StoppedError, fetch
from tests.support.unreliable_server import Unreliable, unreliable

CONTENT = np.random.default_rng(1).bytes(3_000_000)
OTHER = np.random.default_rng(2).bytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Unreliable]:
    with unreliable() as served:
        served.content = CONTENT
        yield served


def fetched(server: Unreliable, folder: Path, sha256: str | None = None) -> bytes:
    """The file, and nothing else beside it."""
    fetch(IngestSource("images.bin", server.url, sha256), folder / "images.bin")
    assert [path.name for path in folder.iterdir()] == ["images.bin"]
    return (folder / "images.bin").read_bytes()


def test_a_file_comes_whole_with_its_progress(server: Unreliable, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "a" / "images.bin"
    fetch(IngestSource("a/images.bin", server.url, SHA256), target, progress=lambda *told: seen.append(told))
    assert target.read_bytes() == CONTENT
    assert seen == sorted(seen, key=lambda told: told[0])
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_what_is_there_is_kept_unless_its_checksum_is_another(server: Unreliable, tmp_path: Path) -> None:
    (tmp_path / "images.bin").write_bytes(b"made by hand")
    assert fetched(server, tmp_path) == b"made by hand"
    assert not server.requests
    assert fetched(server, tmp_path, SHA256) == CONTENT
    fetched(server, tmp_path, SHA256.upper())
    assert len(server.requests) == 1


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_cut_download_continues_where_it_ended(server: Unreliable, tmp_path: Path, framing: str) -> None:
    server.framing = framing
    server.cuts = [1_000_007, 1_000_007]
    assert fetched(server, tmp_path, SHA256) == CONTENT
    starts = [int(word[6:-1]) for word in server.ranges() if word]
    assert len(starts) == 2
    assert 0 < starts[0] <= 1_000_007 < starts[1]
    assert server.requests[1]["if-range"] == '"one"'


def test_last_modified_serves_where_there_is_no_etag(server: Unreliable, tmp_path: Path) -> None:
    server.etag, server.modified = None, formatdate(1e9, usegmt=True)
    server.cuts = [1000]
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges() == [None, "bytes=1000-"]
    assert server.requests[1]["if-range"] == server.modified


@pytest.mark.parametrize("tags", ["none", "weak", "just now"])
def test_without_something_to_compare_it_starts_over(server: Unreliable, tmp_path: Path, tags: str) -> None:
    server.etag = 'W/"one"' if tags == "weak" else None
    server.modified = formatdate(usegmt=True) if tags == "just now" else None
    server.cuts = [1000]
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges() == [None, None]


def test_a_server_without_ranges_is_asked_from_the_start(server: Unreliable, tmp_path: Path) -> None:
    server.has_ranges = False
    server.cuts = [1_000_000, 2_000_000]
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges() == [None, "bytes=1000000-", "bytes=2000000-"]


@pytest.mark.parametrize("minds", [True, False])
@pytest.mark.parametrize("length", [3_000_000, 500])
def test_of_a_file_that_changes_half_way_all_is_new(
    server: Unreliable, tmp_path: Path, minds: bool, length: int
) -> None:
    """Also where the server ignores If-Range and sends the rest of the other file."""
    later = Unreliable()
    later.content, later.etag = OTHER[:length], '"two"'
    server.minds_if_range = minds
    server.cuts, server.on_cut = [1_000_000], [later]
    assert fetched(server, tmp_path) == OTHER[:length]


def test_a_server_that_always_cuts_at_the_same_byte_is_given_up(server: Unreliable, tmp_path: Path) -> None:
    server.has_ranges = False
    server.cuts = [1000] * 100
    with pytest.raises(FetchError, match=r"images.bin ended after 1000 of 3000000 bytes \(gave up after"):
        fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin", patience=2)
    assert 1 < len(server.requests) < 20
    assert not (tmp_path / "images.bin").exists()


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(server: Unreliable, tmp_path: Path) -> None:
    server.cuts = [1000]
    with pytest.raises(FetchError, match=f"has the sha256 {SHA256}, not {'0' * 64}"):
        fetch(IngestSource("images.bin", server.url, "0" * 64), tmp_path / "images.bin")
    assert not (tmp_path / "images.bin").exists()
    server.requests.clear()
    assert fetched(server, tmp_path, SHA256) == CONTENT
    assert server.ranges() == [None]


def test_a_length_that_is_not_told_needs_a_checksum(server: Unreliable, tmp_path: Path) -> None:
    server.framing = "none"
    with pytest.raises(FetchError, match=r"does not say how long the file is.*add its sha256"):
        fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin")
    server.cuts = [1000]  # which looks like the end
    with pytest.raises(FetchError, match="has the sha256"):
        fetch(IngestSource("images.bin", server.url, SHA256), tmp_path / "images.bin")
    assert fetched(server, tmp_path, SHA256) == CONTENT


def test_what_is_not_there_is_not_asked_for_again(server: Unreliable, tmp_path: Path) -> None:
    server.statuses = [404]
    with pytest.raises(FetchError, match=r"/data/images.bin: the server answers 404 Not Found$"):
        fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin")
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again(server: Unreliable, tmp_path: Path) -> None:
    server.statuses = [503, 429, 500]
    assert fetched(server, tmp_path) == CONTENT
    server.statuses = [503] * 100
    with pytest.raises(FetchError, match=r"the server answers 503 Service Unavailable .gave up"):
        fetch(IngestSource("more", server.url), tmp_path / "more", patience=1)


def test_redirects_keep_the_password_to_its_host(server: Unreliable, tmp_path: Path) -> None:
    with unreliable() as first:
        first.redirects = [server.url]
        secret = first.url.replace("://", "://me:open%20sesame@") + "?X-Amz-Signature=abcdef"
        fetch(IngestSource("x", secret), tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == CONTENT
        assert first.requests[0]["authorization"].startswith("Basic ")
        assert "authorization" not in server.requests[0]
        first.statuses = [403]
        with pytest.raises(FetchError) as refused:
            fetch(IngestSource("y", secret), tmp_path / "y")
        assert str(refused.value) == f"{first.url}: the server answers 403 Forbidden"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x"])
def test_redirects_lead_to_web_servers_only(server: Unreliable, tmp_path: Path, target: str) -> None:
    server.redirects = [target]
    with pytest.raises(FetchError, match=r"redirects to|302"):
        fetch(IngestSource("x", server.url), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_stopped_it_continues_later(server: Unreliable, tmp_path: Path) -> None:
    stop = threading.Event()

    def progress(there: int, total: int | None) -> None:
        if there > 1_000_000:
            stop.set()

    with pytest.raises(StoppedError):
        fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin", progress=progress, stop=stop)
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges()[1] is not None


def test_a_killed_download_continues_with_what_was_flushed(server: Unreliable, tmp_path: Path) -> None:
    """What is behind the last flush may be lost after a power cut, whatever length the file has."""
    program = """
import sys, threading
from pathlib import Path
from oarlock.agent.ingest import part_file
from oarlock.agent.ingest.fetch import IngestSource, fetch
part_file._FLUSH = 100_000
def progress(there, total):
    if there > 1_500_000:
        print("far enough", flush=True)
        threading.Event().wait()
fetch(IngestSource("images.bin", sys.argv[1]), Path(sys.argv[2]), progress=progress)
"""
    target = tmp_path / "images.bin"
    words = [sys.executable, "-c", program, server.url, str(target)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "far enough\n"
        child.send_signal(signal.SIGKILL)
    with (tmp_path / "images.bin.part").open("ab") as part:
        part.write(b"\0" * 10_000)
    assert not target.exists()
    assert fetched(server, tmp_path) == CONTENT
    start = server.ranges()[1]
    assert start is not None
    assert int(start[6:-1]) > 1_000_000


def test_a_part_of_another_source_is_not_used(server: Unreliable, tmp_path: Path) -> None:
    server.cuts = [1000]
    with pytest.raises(FetchError):
        fetch(IngestSource("x", server.url), tmp_path / "x", patience=0)
    fetch(IngestSource("x", f"{server.url}?version=2"), tmp_path / "x")
    assert server.ranges() == [None, None]


def test_a_file_that_cannot_grow_is_named(server: Unreliable, tmp_path: Path) -> None:
    """A limit of this process stands for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(FetchError, match=r"images.bin cannot be written: File too large"):
            fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert fetched(server, tmp_path, SHA256) == CONTENT


def test_no_server_and_no_host(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"http://127.0.0.1:1/x: Connection refused \(gave up after"):
        fetch(IngestSource("x", "http://127.0.0.1:1/x"), tmp_path / "x", patience=1)
    with pytest.raises(FetchError, match="ftp:// is not known here"):
        fetch(IngestSource("x", "ftp://127.0.0.1/x"), tmp_path / "x")
    with pytest.raises(FetchError, match="file:// is not known here"):
        fetch(IngestSource("x", "file:///etc/passwd"), tmp_path / "x")
    with pytest.raises(ValueError, match="below the data folder"):
        IngestSource("../x", "http://127.0.0.1:1/x")


def test_a_file_and_a_folder_of_this_machine_are_copied(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "deep").mkdir(parents=True)
    (there / "deep" / "a").write_bytes(CONTENT)
    (there / "b").write_bytes(b"")
    (there / "linked").symlink_to("deep")
    here = tmp_path / "here"
    fetch(IngestSource("all", str(there)), here / "all")
    assert (
        (here / "all" / "linked" / "a").read_bytes() == CONTENT == (here / "all" / "deep" / "a").read_bytes()
    )
    assert (here / "all" / "b").read_bytes() == b""
    (there / "b").write_bytes(b"changed later")
    assert (here / "all" / "b").read_bytes() == b""
    fetch(IngestSource("a", str(there / "deep" / "a"), SHA256), here / "a")
    assert (here / "a").read_bytes() == CONTENT
    assert sorted(path.name for path in here.iterdir()) == ["a", "all"]


def test_a_folder_that_was_interrupted_keeps_its_files_and_loses_strays(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for name in "abc":
        (there / name).write_bytes(CONTENT)
    stop = threading.Event()

    def progress(there: int, total: int | None) -> None:
        assert total == 3 * len(CONTENT)
        if there > 1.9 * len(CONTENT):  # all of b has come, and has no name yet
            stop.set()

    with pytest.raises(StoppedError):
        fetch(IngestSource("all", str(there)), here / "all", progress=progress, stop=stop)
    first = (here / "all.part" / "a").stat()
    (there / "b").write_bytes(OTHER)
    (here / "all.part" / "stray").write_bytes(b"")
    fetch(IngestSource("all", str(there)), here / "all")
    assert (here / "all" / "a").stat().st_ino == first.st_ino
    assert {path.name: path.read_bytes() for path in (here / "all").iterdir()} == {
        "a": CONTENT,
        "b": OTHER,
        "c": CONTENT,
    }


def test_odd_paths_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="missing cannot be read: No such file"):
        fetch(IngestSource("x", str(tmp_path / "missing")), tmp_path / "x")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FetchError, match="fifo is neither a file nor a folder"):
        fetch(IngestSource("x", str(tmp_path / "fifo")), tmp_path / "x")
    (tmp_path / "fifo").unlink()
    with pytest.raises(FetchError, match="is a folder, and a sha256 is of one file"):
        fetch(IngestSource("x", str(tmp_path), SHA256), tmp_path / "x")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "again").symlink_to(tmp_path / "loop")
    with pytest.raises(FetchError, match="is a link to a folder that it is in"):
        fetch(IngestSource("x", str(tmp_path / "loop")), tmp_path / "x")


def test_a_download_that_only_lacks_its_name_is_compared_and_kept(server: Unreliable, tmp_path: Path) -> None:
    def progress(there: int, total: int | None) -> None:
        if there == total:
            raise InterruptedError

    with pytest.raises(FetchError):
        fetch(IngestSource("images.bin", server.url), tmp_path / "images.bin", progress=progress)
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges() == [None, f"bytes={len(CONTENT) - 1}-"]


def test_https_needs_a_certificate_that_is_trusted_and_does_not_lead_to_http(
    server: Unreliable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    address = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", str(key)]
    subprocess.run(["openssl", *words.split(), *address], check=True, capture_output=True, timeout=300)
    made.write_bytes(made.read_bytes() + key.read_bytes())
    with unreliable(made) as safe:
        safe.content = CONTENT
        with pytest.raises(FetchError, match=r"images.bin: its certificate is not trusted here: self.signed"):
            fetch(IngestSource("x", safe.url), tmp_path / "x")
        monkeypatch.setenv("SSL_CERT_FILE", str(made))
        safe.cuts = [1_000_000]
        fetch(IngestSource("x", safe.url, SHA256), tmp_path / "x")
        safe.redirects = [server.url] * 2
        with pytest.raises(
            FetchError, match=r"redirects to http://.*, which is not followed: add the file's"
        ):
            fetch(IngestSource("y", safe.url), tmp_path / "y")
        fetch(IngestSource("y", safe.url, SHA256), tmp_path / "y")
    assert (tmp_path / "x").read_bytes() == CONTENT == (tmp_path / "y").read_bytes()
