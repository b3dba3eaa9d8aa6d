"""Saving with the real writer: whoever dies, whenever, and whatever the disk does, what is found is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.checkpoints.retention import Retention
from oarlock.checkpoints.safetensors import TensorFile
from oarlock.checkpoints.store import FencedError, Store, fingerprint
from oarlock.system import fd_frames, processes
from oarlock.training.saving import writer, writer_handle
from oarlock.training.saving.session import CheckpointSession
from tests.support.gangs import until_gone
from tests.support.soaking import moments
from tests.support.waiting import eventually

MOMENTS = moments(25)
SEED = os.environ.get("OARLOCK_CHANCE", "")
MIB = 1 << 20

SAVES_FOR_EVER = """
import sys
import numpy as np
from oarlock.training.saving.session import CheckpointSession
from oarlock.checkpoints.retention import Retention

saving = CheckpointSession(Retention(keep=2))
things = {"weights": np.zeros(1 << 19), "counts": np.zeros(1000, "int64"), "step": 0}
saving.restore(things)
step = things["step"]
assert step == saving.step and (things["weights"] == step).all() and (things["counts"] == step).all()
print("restored", step, flush=True)
while True:
    step += 1
    things["weights"][:] = things["counts"][:] = things["step"] = step
    if saving.save(step, things, {}, None):
        saving.poll(0.001)
"""

MEASURED = """
import sys, time
from pathlib import Path
import numpy as np
from oarlock.training.saving.session import CheckpointSession

def private(pid):
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024

state = np.ones(64 << 17)
saving = CheckpointSession()
before, most = private("self"), 0.0
for step in range(1, 4):
    assert saving.save(step, {"state": state}, {}, None)
    while saving.is_busy:
        writer = saving._writer._process.pid
        # A page that both map counts half for each. While the writer maps more, ours count less meanwhile.
        mine, its = private("self"), private(writer)
        most = max(most, min(mine, private("self")) + its - before)
        saving.poll(0.001)
saving.close()
print(most, private("self") - before)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("OARLOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints"


@pytest.fixture
def checkpointing(folder: Path) -> Iterator[CheckpointSession]:
    made = CheckpointSession()
    yield made
    made.close()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Other moments every time; a failure prints the seed, and OARLOCK_CHANCE repeats it."""
    seed = SEED or str(random.SystemRandom().getrandbits(32))
    print(f"OARLOCK_CHANCE={seed}")
    return random.Random(f"{seed} {request.node.name}")


def state(step: int, size: int = 4 * MIB) -> dict[str, Any]:
    """Every number of it says which step it is of."""
    return {"weights": np.full(size // 8, float(step)), "counts": np.full(1000, step), "step": step}


def check_content(folder: Path, step: int) -> None:
    newest, _ = Store(folder).newest()
    assert newest is not None
    assert newest.step == step
    file = TensorFile(newest.path / "state.safetensors")
    assert (np.frombuffer(file.bytes_of("weights")) == step).all()
    assert (np.frombuffer(file.bytes_of("counts"), "int64") == step).all()
    assert file.tree["step"] == {"plain": {"value": step}}


def writer_of(checkpointing: CheckpointSession) -> subprocess.Popen[bytes]:
    writer = checkpointing._writer._process
    assert writer is not None
    return writer


def save(checkpointing: CheckpointSession, step: int, things: dict[str, Any] | None = None) -> None:
    assert checkpointing.save(step, things or state(step), {}, None)
    checkpointing.finish(300)
    assert not checkpointing.is_busy


# Somebody dies


def test_the_writer_killed_at_any_moment_of_a_save(
    folder: Path, checkpointing: CheckpointSession, chance: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    save(checkpointing, 1)
    began = time.monotonic()
    save(checkpointing, 2)
    latest = time.monotonic() - began
    early = 0
    for step in range(3, MOMENTS + 3):
        assert checkpointing.save(step, state(step), {}, None)
        moment = time.monotonic() + chance.uniform(0, latest)
        while time.monotonic() < moment:
            time.sleep(0.0002)
        writer = writer_of(checkpointing)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        newest, complaints = Store(folder).newest()
        assert newest is not None
        assert complaints == [], "what is torn has no name that counts"
        assert newest.step in (step - 1, step)
        check_content(folder, newest.step)
        early += newest.step == step - 1
        latest *= 1.25 if newest.step == step - 1 else 0.8  # about half of all, however busy the machine is
        checkpointing.finish(300)
        assert writer_of(checkpointing).pid != writer.pid or newest.step == step
        check_content(folder, step)
    assert early, "no kill came before the end of its save"
    assert capsys.readouterr().err == "", "nobody has to know"


def test_a_save_whose_writer_dies_three_times_is_given_up_and_the_next_one_is_not(
    folder: Path,
    checkpointing: CheckpointSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(checkpointing, 1)
    start = writer_handle.WriterHandle._start

    def start_and_kill(self: writer_handle.WriterHandle) -> None:
        start(self)
        assert self._process is not None
        self._process.kill()

    writer_of(checkpointing).kill()
    monkeypatch.setattr(writer_handle.WriterHandle, "_start", start_and_kill)
    save(checkpointing, 2)
    assert checkpointing.step == -1, "nothing newer is safe"
    check_content(folder, 1)
    monkeypatch.undo()
    monkeypatch.setenv("CHECKPOINT_DIR", str(folder))
    save(checkpointing, 3)
    check_content(folder, 3)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "oarlock: a checkpoint could not be saved, retrying: its writer died 3 times",
        "oarlock: checkpoints are saved again: step-0000000003-g1",
    ]


def test_a_writer_that_died_after_its_commit_takes_nothing_away(folder: Path) -> None:
    """With one checkpoint to keep, doing it again would mean a moment without any."""
    checkpointing = CheckpointSession(Retention(keep=1))
    save(checkpointing, 1)
    assert checkpointing.save(2, state(2), {}, None)
    sock = checkpointing._writer._sock
    assert sock is not None
    answer, _ = fd_frames.receive(sock)  # as if it had died before it could say so
    assert answer is not None
    assert answer["name"] == "step-0000000002-g1"
    before = (folder / answer["name"] / "manifest.json").stat().st_ino
    writer_of(checkpointing).kill()
    checkpointing.finish(300)
    assert checkpointing.step == 2
    assert (folder / answer["name"] / "manifest.json").stat().st_ino == before
    checkpointing.close()


def test_the_program_and_its_writer_killed_at_any_moment(folder: Path, chance: random.Random) -> None:
    reached, usual = 0, 0.0  # seconds to a first checkpoint, here and now
    for moment in range(max(5, MOMENTS // 5)):
        program = subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert program.stdout is not None
        assert program.stderr is not None
        with program:
            said = program.stdout.readline()
            assert said == f"restored {reached}\n", f"{moment}: {said}{program.poll()}"
            began = time.monotonic()
            if not usual:
                eventually(lambda: Store(folder).checkpoints(), "checkpoint", every=0.001)
                usual = time.monotonic() - began
            until = began + chance.uniform(0, 2 * usual)
            while time.monotonic() < until:
                assert program.poll() is None
                time.sleep(0.001)
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            going_on = f"oarlock: resuming from step {reached} (step-{reached:010d}-g1)\n"
            assert program.stderr.read() == (going_on if reached else "")
        newest, complaints = Store(folder).newest()
        assert complaints == []
        if newest is not None:
            assert newest.step >= reached
            reached = newest.step
            check_content(folder, reached)
    assert reached > 0


def test_a_program_killed_alone_leaves_a_writer_that_finishes(folder: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", SAVES_FOR_EVER], stdout=subprocess.PIPE)
    with program:
        eventually(lambda: Store(folder).checkpoints(), "checkpoint", every=0.005)
        writers = processes.descendants(program.pid)
        assert writers
        program.kill()
    until_gone(writers)  # it may only now begin with what it was given
    assert not list(folder.glob(".saving-*"))
    newest, complaints = Store(folder).newest()
    assert newest is not None
    assert complaints == []
    check_content(folder, newest.step)


def test_a_generation_that_was_replaced_learns_it(folder: Path, checkpointing: CheckpointSession) -> None:
    save(checkpointing, 1)
    Store(folder).raise_fence("local", 2)
    with pytest.raises(FencedError, match="belongs to generation 2 of local now"):
        save(checkpointing, 2)
    check_content(folder, 1)
    assert not list(folder.glob(".saving-*"))


# The disk


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(folder)], check=True, timeout=300)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=300)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_said_once_and_costs_nothing_but_the_saves_it_has_no_room_for(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpointing = CheckpointSession(Retention(keep=1))
    save(checkpointing, 1)
    hog = small_disk / "hog"
    hog.write_bytes(bytes(4 * MIB))
    for step in (2, 3, 4):
        save(checkpointing, step)
        assert checkpointing.step == -1
        check_content(small_disk, 1)
        assert not list(small_disk.glob(".saving-*")), "the room is given back"
    hog.unlink()
    save(checkpointing, 5)
    check_content(small_disk, 5)
    save(checkpointing, 6)
    checkpointing.close()
    assert capsys.readouterr().err.splitlines() == [
        f"oarlock: a checkpoint could not be saved, retrying: {small_disk}: No space left on device",
        "oarlock: checkpoints are saved again: step-0000000005-g1",
    ]
    fresh = CheckpointSession()
    things = state(0)
    fresh.restore(things)
    assert (fresh.step, things["step"]) == (6, 6)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("pages", [0, 1, 10, 17, 18, 19, 20])
def test_a_disk_that_is_full_at_any_byte_of_a_save(small_disk: Path, pages: int) -> None:
    """Also when only the manifest no longer fits."""
    checkpointing = CheckpointSession(Retention(keep=1))
    things = {"weights": np.full(8000, 1.0), "counts": np.full(1000, 1), "step": 1}
    save(checkpointing, 1, things)
    disk = os.statvfs(small_disk)
    with (small_disk / "hog").open("wb") as hog:
        os.posix_fallocate(hog.fileno(), 0, (disk.f_bavail - pages) * disk.f_frsize)
    things = {"weights": np.full(8000, 2.0), "counts": np.full(1000, 2), "step": 2}
    save(checkpointing, 2, things)
    newest, complaints = Store(small_disk).newest()
    assert newest is not None
    assert complaints == []
    assert not list(small_disk.glob(".saving-*"))
    assert (checkpointing.step == 2) == (pages >= 19), "18 hold the tensors, one the manifest"
    check_content(small_disk, 2 if pages >= 19 else 1)
    checkpointing.close()


def test_a_folder_that_vanishes_comes_back(folder: Path, checkpointing: CheckpointSession) -> None:
    save(checkpointing, 1)
    folder.rename(folder.with_name("gone"))
    save(checkpointing, 2)
    check_content(folder, 2)


# One copy


def test_one_save_is_in_flight(folder: Path, checkpointing: CheckpointSession) -> None:
    save(checkpointing, 1)
    writer_of(checkpointing).send_signal(signal.SIGSTOP)
    assert checkpointing.save(2, state(2), {}, None)
    assert not checkpointing.save(3, state(3), {}, None), "the copy is still being written"
    assert checkpointing.is_busy
    writer_of(checkpointing).send_signal(signal.SIGCONT)
    checkpointing.finish(300)
    check_content(folder, 2)
    save(checkpointing, 4)
    check_content(folder, 4)


def test_what_the_program_does_after_a_save_does_not_change_it(
    folder: Path, checkpointing: CheckpointSession
) -> None:
    save(checkpointing, 1)
    writer_of(checkpointing).send_signal(signal.SIGSTOP)
    things = state(2)
    assert checkpointing.save(2, things, {}, None)
    things["weights"][:] = things["counts"][:] = 99
    writer_of(checkpointing).send_signal(signal.SIGCONT)
    checkpointing.finish(300)
    check_content(folder, 2)


def test_a_state_that_grows_and_shrinks(folder: Path, checkpointing: CheckpointSession) -> None:
    for step, size in enumerate((8, MIB, 8, 6 * MIB, 0), start=1):
        save(checkpointing, step, state(step, size))
        check_content(folder, step)


def test_a_save_takes_the_memory_of_one_copy() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    most, after = map(float, done.stdout.split())
    assert 64 <= most <= 1.1 * 64 + 16, "the state has 64 MiB, a fresh interpreter about ten"
    assert after < 8, "it is given back"


# What the next start reads


def test_a_save_says_how_its_file_is_known_to_be_untouched(
    folder: Path, checkpointing: CheckpointSession
) -> None:
    save(checkpointing, 1)
    newest, _ = Store(folder).newest()
    assert newest is not None
    entry = newest.manifest["files"]["state.safetensors"]
    assert entry["untouched"] == fingerprint((newest.path / "state.safetensors").stat())


def test_a_file_stays_in_memory_only_where_there_is_room_for_more() -> None:
    assert writer._has_room(1)
    assert not writer._has_room(1 << 50)
