"""Sources in object storage, on a real S3 server."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oarlock.agent.ingest.fetch import FetchError, IngestSource, StoppedError, fetch
from tests.support.other_stores import Azure, Google, ObjectServer
from tests.support.stores import BUCKET, Narrow, Store, needs_store, serving

pytestmark = needs_store

LARGE = np.random.default_rng(1).bytes(20 << 20)  # three parts
OTHER = np.random.default_rng(2).bytes(20 << 20)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, serving(tmp_path_factory.mktemp("store"), patch) as store:
        for name, content in {"set/large": LARGE, "set/deep/small": b"small", "settle": b"other"}.items():
            put(name, content)
        yield store


def put(name: str, content: bytes, url: str = f"s3://{BUCKET}") -> None:
    import obstore
    from obstore.store import from_url

    obstore.put(from_url(url, client_options={"allow_http": True}), name, content)


def test_an_object_and_a_prefix(store: Store, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    sha256 = hashlib.sha256(LARGE).hexdigest()
    fetch(IngestSource("one", f"s3://{BUCKET}/set/large", sha256), tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == LARGE
    fetch(
        IngestSource("all", f"s3://{BUCKET}/set"), tmp_path / "all", progress=lambda *told: seen.append(told)
    )
    files = {path.relative_to(tmp_path / "all").as_posix(): path for path in (tmp_path / "all").rglob("*")}
    assert sorted(files) == ["deep", "deep/small", "large"]
    assert files["large"].read_bytes() == LARGE
    assert files["deep/small"].read_bytes() == b"small"
    assert seen[-1] == (len(LARGE) + 5, len(LARGE) + 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "one"]


@pytest.mark.parametrize("make", [pytest.param(Google, id="gs"), pytest.param(Azure, id="az")])
def test_the_same_in_other_stores(
    make: Callable[[Path], ObjectServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make(tmp_path / "server")
    server.start()
    try:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        for name, content in {"set/large": LARGE, "set/deep/small": b"small", "settle": b"other"}.items():
            put(name, content, server.url)
        fetch(IngestSource("one", f"{server.url}/set/large"), tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == LARGE
        fetch(IngestSource("all", f"{server.url}/set"), tmp_path / "all")
        found = [path.relative_to(tmp_path / "all").as_posix() for path in (tmp_path / "all").rglob("*")]
        assert sorted(found) == ["deep", "deep/small", "large"]
        with pytest.raises(FetchError, match="no such object"):
            fetch(IngestSource("none", f"{server.url}/nothing"), tmp_path / "none")
    finally:
        server.kill()


def test_what_came_before_a_stop_does_not_come_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = Narrow(store.port, rate=1e9)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{narrow.port}")
    stop = threading.Event()
    source = IngestSource("one", f"s3://{BUCKET}/set/large")
    with pytest.raises(StoppedError):
        fetch(source, tmp_path / "one", progress=lambda at, _: stop.set() if at else None, stop=stop)
    held, passed = (tmp_path / "one.part").stat().st_size, narrow.passed
    assert 0 < held < len(LARGE)
    fetch(source, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == LARGE
    assert narrow.passed - passed < len(LARGE) - held + (1 << 20)
    narrow.close()


def test_an_object_that_is_replaced_half_way_comes_new(store: Store, tmp_path: Path) -> None:
    put("changing", LARGE * 2)
    has_changed = False

    def progress(at: int, total: int | None) -> None:
        nonlocal has_changed
        if at and not has_changed:
            has_changed = True
            put("changing", OTHER)

    fetch(IngestSource("one", f"s3://{BUCKET}/changing"), tmp_path / "one", progress=progress)
    assert (tmp_path / "one").read_bytes() == OTHER


def test_a_store_that_is_away_for_a_while(store: Store, tmp_path: Path) -> None:
    """Its failures are retried; so are those of the first question."""
    store.kill()
    timer = threading.Timer(1, store.start)
    timer.start()
    fetch(IngestSource("one", f"s3://{BUCKET}/settle"), tmp_path / "one")
    timer.join()
    assert (tmp_path / "one").read_bytes() == b"other"


def test_what_is_not_there_and_what_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FetchError, match=f"^s3://{BUCKET}/se: there is no such object, and none below it$"):
        fetch(IngestSource("x", f"s3://{BUCKET}/se"), tmp_path / "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(FetchError) as refused:
        fetch(IngestSource("x", f"s3://{BUCKET}/set/large"), tmp_path / "x", patience=1)
    assert store.key not in str(refused.value)
    assert "wrong-and-secret" not in str(refused.value)
    assert "403 Forbidden (gave up after" in str(refused.value)


def test_without_obstore_a_sentence_names_it(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from oarlock.agent.ingest.fetch import FetchError, IngestSource, fetch
sys.modules["obstore"] = None
try:
    fetch(IngestSource("x", "gs://somewhere/x"), Path("x"))
except FetchError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "gs:// needs obstore, which is not installed here: add `pip: [obstore]`" in done.stdout
