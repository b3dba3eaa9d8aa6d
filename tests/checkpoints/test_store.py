"""The folder of checkpoints: only what is complete counts, damage is seen, and only its owner adds to it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.checkpoints import manifest as manifests
from oarlock.checkpoints import safetensors
from oarlock.checkpoints import store as storing
from oarlock.checkpoints.safetensors import Shape
from oarlock.checkpoints.store import Checkpoint, FencedError, Store, checksum, fingerprint, verify
from tests.support.waiting import eventually

RUN = "job-abcd"
HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def add(
    store: Store,
    step: int,
    generation: int = 1,
    run: str = RUN,
    content: bytes = b"",
    untouched: Callable[[os.stat_result], str | None] | None = None,
) -> Checkpoint:
    draft = store.draft(step, generation)
    draft.mkdir(parents=True)
    shapes = {"weights": Shape("float32", (256,)), "flags": Shape("uint8", (7,))}
    head = safetensors.header(shapes, {"model": {}})
    (draft / "state.safetensors").write_bytes(head + (content or bytes(range(250)) * 5)[: 256 * 4 + 7])
    size, crc = checksum(draft / "state.safetensors")
    manifest: dict[str, Any] = {
        "format": manifests.FORMAT,
        "run": run,
        "generation": generation,
        "step": step,
        "metrics": {"loss": 0.1},
        "files": {"state.safetensors": {"size": size, "crc32": crc}},
    }
    if untouched:
        manifest["files"]["state.safetensors"]["untouched"] = untouched((draft / "state.safetensors").stat())
    return store.commit(draft, manifest)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "checkpoints")
    store.raise_fence(RUN, 1)
    return store


def size(checkpoint: Checkpoint) -> int:
    return sum(file["size"] for file in checkpoint.manifest["files"].values())


def names(store: Store) -> list[str]:
    return [one.name for one in store.checkpoints()]


# What is there


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "nowhere")
    assert (store.checkpoints(), store.newest()) == ([], (None, []))
    assert store.fence() is None
    store.clean()


def test_checkpoints_come_oldest_first_by_step_and_then_by_generation(store: Store) -> None:
    for step, generation in ((120, 1), (5, 1), (120, 2), (1000000000000, 2)):
        store.raise_fence(RUN, generation)
        add(store, step, generation)
    assert names(store) == [
        "step-0000000005-g1",
        "step-0000000120-g1",
        "step-0000000120-g2",
        "step-1000000000000-g2",
    ]
    newest, complaints = store.newest()
    assert newest is not None
    assert (newest.step, newest.generation, complaints) == (1000000000000, 2, [])
    assert size(newest) == (newest.path / "state.safetensors").stat().st_size
    assert verify(newest) is None


def test_what_is_half_written_or_half_deleted_does_not_count_and_is_cleaned_away(store: Store) -> None:
    add(store, 1)
    half = store.draft(2, 1)
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half")
    (store.folder / ".deleting-step-0000000000-g1-77").mkdir()
    (store.folder / "notes.txt").write_text("a user's own")
    assert names(store) == ["step-0000000001-g1"]
    store.clean()
    left = sorted(path.name for path in store.folder.iterdir())
    assert left == [".fence", ".lock", "notes.txt", "step-0000000001-g1"]


def test_large_leftovers_are_out_of_the_way_at_once_and_deleted_meanwhile(store: Store) -> None:
    half = store.draft(2, 1)
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half")
    (store.folder / ".deleting-step-0000000000-g1-77").mkdir()
    store.clean_meanwhile()
    assert not half.exists()
    eventually(lambda: len(list(store.folder.iterdir())) == 2, "folder with only .fence and .lock", 30)


def test_a_deleted_checkpoint_is_gone_at_once(store: Store) -> None:
    first, second = add(store, 1), add(store, 2)
    store.delete(second)
    assert store.newest()[0] == first
    assert not second.path.exists()
    assert not list(store.folder.glob(".deleting-*"))


def test_the_same_step_again_replaces_the_one_there_was(store: Store) -> None:
    add(store, 4, content=bytes(2000))
    torn = add(store, 5)
    (torn.path / "state.safetensors").unlink()
    add(store, 5, content=b"\x01" * 2000)
    newest, complaints = store.newest()
    assert newest is not None
    assert (newest.step, complaints) == (5, [])
    assert (newest.path / "state.safetensors").read_bytes().endswith(b"\x01" * 1000)


# Damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x04
    path.write_bytes(data)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def until_the_clock_of_files_has_moved(probe: Path, since: Path) -> None:
    """Older kernels date files by the millisecond or four: nobody damages one that soon but a test."""

    def moved() -> bool:
        probe.write_bytes(b"")
        return probe.stat().st_ctime_ns > since.stat().st_ctime_ns

    eventually(moved, "later time of the file system", 30, every=0.001)


def make_unreadable(path: Path) -> None:
    """As root there is no file that may not be read; there are links that lead nowhere but to themselves."""
    path.unlink()
    path.symlink_to(path.name)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "one byte is missing": (truncate, "has {less} bytes instead of {size}"),
    "it is empty": (lambda path: path.write_bytes(b""), "has 0 bytes instead of {size}"),
    "it has grown": (
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        "has {more} bytes instead of {size}",
    ),
    "a byte of the header's length": (lambda path: flip(path, 0), "has changed since it was written"),
    "a byte of the header": (lambda path: flip(path, 100), "has changed since it was written"),
    "the first byte of a tensor": (lambda path: flip(path, -256 * 4 - 7), "has changed since it was written"),
    "a byte in the middle": (lambda path: flip(path, -512), "has changed since it was written"),
    "the last byte": (lambda path: flip(path, -1), "has changed since it was written"),
    "it was removed": (Path.unlink, "is missing"),
    "a folder in its place": (replace_by_folder, "cannot be read (Is a directory)"),
    "unreadable": (make_unreadable, "cannot be read (Too many levels of symbolic links)"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("written", ["elsewhere", "here"])
def test_a_damaged_file_is_said_and_the_next_older_checkpoint_taken(
    store: Store, damage: str, written: str
) -> None:
    untouched = fingerprint if written == "here" else None
    older, newer = add(store, 1, untouched=untouched), add(store, 2, untouched=untouched)
    until_the_clock_of_files_has_moved(store.folder / "probe", newer.path / "state.safetensors")
    spoil, why = DAMAGE[damage]
    why = why.format(size=size(newer), less=size(newer) - 1, more=size(newer) + 1)
    spoil(newer.path / "state.safetensors")
    assert why in str(verify(newer))
    newest, (complaint,) = store.newest()
    assert newest == older
    assert complaint.startswith(f"skipped step-0000000002-g1, which is not whole: state.safetensors {why}")
    assert "\n" not in complaint


def test_no_byte_of_a_file_can_change_without_being_seen(store: Store) -> None:
    checkpoint = add(store, 1)
    path = checkpoint.path / "state.safetensors"
    for at in range(0, size(checkpoint), 3):
        flip(path, at)
        assert verify(checkpoint) is not None, at
        flip(path, at)
    assert verify(checkpoint) is None


def test_what_this_machine_wrote_and_nobody_touched_is_not_read_again_to_be_restored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_this_boot, of_another = add(store, 1, untouched=fingerprint), add(store, 2, untouched=another_boot)
    read: list[Path] = []

    def checksum_noting(path: Path) -> tuple[int, str]:
        read.append(path.parent)
        return checksum(path)

    monkeypatch.setattr(storing, "checksum", checksum_noting)
    assert store.newest([of_this_boot.name])[0] == of_this_boot
    assert read == []
    assert verify(of_this_boot) is None
    assert read == [of_this_boot.path], "whoever asks for every byte gets every byte"
    assert store.newest() == (of_another, [])
    assert read == [of_this_boot.path, of_another.path]


def another_boot(found: os.stat_result) -> str:
    _, _, rest = str(fingerprint(found)).partition(" ")
    return f"00000000-0000-0000-0000-000000000000 {rest}"


def test_a_machine_that_names_no_boot_reads_everything(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_BOOT", store.folder / "nowhere")
    checkpoint = add(store, 1, untouched=fingerprint)
    assert checkpoint.manifest["files"]["state.safetensors"]["untouched"] is None
    until_the_clock_of_files_has_moved(store.folder / "probe", checkpoint.path / "state.safetensors")
    flip(checkpoint.path / "state.safetensors", -1)
    assert store.newest()[0] is None


def test_no_byte_of_a_manifest_can_change_without_being_seen(store: Store) -> None:
    """But for those that mean the same: what is read is then still what was written."""
    checkpoint = add(store, 1)
    path = checkpoint.path / "manifest.json"
    for at in range(path.stat().st_size):
        flip(path, at)
        assert store.checkpoints() in ([], [checkpoint]), at
        flip(path, at)
    assert store.checkpoints() == [checkpoint]


def seal(manifest: Any) -> bytes:
    return json.dumps({"crc32": manifests.seal(manifest), "manifest": manifest}).encode()


MANIFESTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "one digit changed": (lambda text: text.replace(b'"step": 2', b'"step": 3'), "its manifest has changed"),
    "truncated": (lambda text: text[:-10], "its manifest is damaged"),
    "empty": (lambda text: b"", "its manifest is damaged"),
    "not text": (lambda text: bytes(range(256)), "its manifest is damaged"),
    "not an object": (lambda text: b"[]", "its manifest is damaged"),
    "of another format": (lambda text: seal({**json.loads(text)["manifest"], "format": 2}), "has format 2"),
}


@pytest.mark.parametrize("damage", MANIFESTS)
def test_a_manifest_that_is_not_as_it_was_written(store: Store, damage: str) -> None:
    older, newer = add(store, 1), add(store, 2)
    spoil, why = MANIFESTS[damage]
    path = newer.path / "manifest.json"
    path.write_bytes(spoil(path.read_bytes()))
    assert store.checkpoints() == [older]
    reason = Store.read(newer.path)
    assert isinstance(reason, str)
    assert why in reason
    newest, (complaint,) = store.newest()
    assert newest == older
    assert complaint == f"skipped {newer.name}, which is not whole: {reason}"


def test_a_missing_or_unreadable_manifest(store: Store) -> None:
    first, second, third = (add(store, step) for step in (1, 2, 3))
    (third.path / "manifest.json").unlink()
    replace_by_folder(second.path / "manifest.json")
    (store.folder / "step-0000000004-g1").write_text("a file, not a folder")
    newest, complaints = store.newest()
    assert newest == first
    assert [complaint.rpartition(": ")[2] for complaint in complaints] == [
        "its manifest cannot be read (Not a directory)",
        "it has no manifest",
        "its manifest cannot be read (Is a directory)",
    ]


def test_if_all_are_torn_there_is_none_and_each_is_named(store: Store) -> None:
    for step in (1, 2, 3):
        truncate(add(store, step).path / "state.safetensors")
    newest, complaints = store.newest()
    assert newest is None
    assert [complaint.split()[1].rstrip(",") for complaint in complaints] == [
        "step-0000000003-g1",
        "step-0000000002-g1",
        "step-0000000001-g1",
    ]


# Who may add


@pytest.mark.parametrize(("run", "generation"), [(RUN, 1), (RUN, 3), ("other", 2)])
def test_only_the_generation_and_run_of_the_fence_commits(store: Store, run: str, generation: int) -> None:
    before = add(store, 1)
    store.raise_fence(RUN, 2)
    with pytest.raises(FencedError, match="belongs to generation 2 of job-abcd now"):
        add(store, 9, generation, run)
    assert store.checkpoints() == [before]


def test_without_a_fence_anybody_commits(tmp_path: Path) -> None:
    store = Store(tmp_path)
    add(store, 1, generation=7, run="anything")
    assert names(store) == ["step-0000000001-g7"]


def test_a_fence_that_cannot_be_read_lets_nobody_through(store: Store) -> None:
    (store.folder / ".fence").write_text("{")
    with pytest.raises(FencedError):
        add(store, 1)
    store.raise_fence(RUN, 1)
    store.clean()
    add(store, 1)


def test_a_fence_raised_while_files_were_written_is_seen_at_the_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = storing._write_manifest

    def write_and_lose(draft: Path, manifest: dict[str, Any]) -> None:
        write(draft, manifest)
        store.raise_fence(RUN, 2)

    monkeypatch.setattr(storing, "_write_manifest", write_and_lose)
    with pytest.raises(FencedError):
        add(store, 1)
    assert store.checkpoints() == []


def test_nobody_raises_the_fence_between_the_look_and_the_rename(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "_LOCK_PATIENCE", 0.05)
    look = Store.fence

    def look_and_be_raced(self: Store) -> tuple[str, int] | None:
        with pytest.raises(TimeoutError, match=r"holds .*/\.lock for too long"):
            Store(self.folder).raise_fence(RUN, 2)
        return look(self)

    monkeypatch.setattr(Store, "fence", look_and_be_raced)
    add(store, 1)
    assert names(store) == ["step-0000000001-g1"]


def test_a_lock_is_waited_for_while_its_holder_lives_and_is_free_when_it_dies(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = store.folder / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        try:
            assert holder.stdout.readline() == "held\n"
            monkeypatch.setattr(storing, "_LOCK_PATIENCE", 0.05)
            with pytest.raises(TimeoutError):
                add(store, 1)
            assert store.checkpoints() == []
        finally:
            holder.send_signal(signal.SIGKILL)
    store.clean()
    add(store, 1)
    assert names(store) == ["step-0000000001-g1"]


def test_a_file_system_without_locks_still_has_the_fence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    add(store, 1)
    store.raise_fence(RUN, 2)
    with pytest.raises(FencedError):
        add(store, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
def test_another_user_cannot_hold_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """To lock a file takes only the right to read it; an older version created it for all to read."""
    monkeypatch.setattr(storing, "_LOCK_PATIENCE", 0.05)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        store = Store(name)
        lock = Path(name) / ".lock"
        lock.touch(mode=0o644)
        lock.chmod(0o644)
        assert _locked_by_a_stranger(lock), "it could look at all"
        for _ in range(2):
            add(store, 1)
            assert stat.S_IMODE(lock.stat().st_mode) == 0o600
            assert not _locked_by_a_stranger(lock)
            lock.unlink()  # the next one is created as it should be


@pytest.mark.parametrize("mode", [0o770, 0o2755])
def test_a_group_that_shares_the_folder_shares_its_lock(store: Store, mode: int) -> None:
    """A claim is a group's through fsGroup, and its pods may have different users."""
    store.folder.mkdir(exist_ok=True)
    store.folder.chmod(mode)
    before = os.umask(0o077)
    try:
        add(store, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((store.folder / ".lock").stat().st_mode) == 0o660


def _locked_by_a_stranger(lock: Path) -> bool:
    words = ["flock", "-n", str(lock), "true"]
    done = subprocess.run(words, user=65534, group=65534, extra_groups=[], capture_output=True, timeout=60)
    return done.returncode == 0
