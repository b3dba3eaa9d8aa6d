"""The writer: a separate process that writes a copied state to the disk while training continues.

It is a fresh interpreter without a framework, started before the first save. The state is in memory that
both processes share; a `Save` describes its layout. The writer writes to a draft folder, flushes to the disk
and commits by one rename into the checkpoints folder (`checkpoints/store.py`). If the job has snapshots, the
uploader picks up the checkpoint there: a process of the leading agent that polls the folder
(`agent/snapshots/uploader.py`). Nothing in `training/` knows about it.

If the disk fails, the writer only answers so: the last good checkpoint stays in place.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import socket
import sys
import zlib
from contextlib import suppress
from pathlib import Path

from oarlock.checkpoints import score_file
from oarlock.checkpoints.manifest import WrittenEntry
from oarlock.checkpoints.store import Checkpoint, FencedError, Store, fingerprint
from oarlock.system import control_group, fd_frames, processes
from oarlock.system.atomic_file import write_whole
from oarlock.system.polling import wait_for
from oarlock.training.saving.save_messages import ANSWERS, REQUESTS, Answer, NotSaved, Save, Saved

_CHUNK = 32 << 20  # bytes between two flushes, so that dirty pages do not pile up in memory
_PARTS_PATIENCE = 600.0  # seconds for the other ranks' parts of a sharded state
_ROOM = 4  # times a file's size that must be free for it to stay in memory: training may still need some
_NICE = 10  # training has priority
_LAST = 5.0  # seconds for a killed program to exit


def main() -> None:
    """`writer FD`: the socket to the program. The writer exits when the program closes it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the program, which will close the socket
    os.nice(_NICE)
    processes.set_name(processes.WRITER)
    sock = socket.socket(fileno=int(sys.argv[1]))
    program = os.getppid()
    memory: mmap.mmap | None = None
    while True:
        data, fds = fd_frames.receive(sock)
        if data is None:
            _outlive(program)
            return
        if fds:
            memory = mmap.mmap(fds[0], 0, prot=mmap.PROT_READ)
            os.close(fds[0])
        request = REQUESTS.from_data(data)
        if isinstance(request, Save):
            try:
                fd_frames.send(sock, ANSWERS.to_data(_save(request, memory)))
            except ConnectionError:
                return


def _outlive(program: int) -> None:
    """If the program was killed, let it exit first: the last process to exit frees the memory, 0.1 s for
    1.5 GB, and a restart waits for the end of the program but not for that of its writer."""
    with suppress(TimeoutError):
        wait_for(
            lambda: os.getppid() != program or not processes.is_dying(program),
            "end of the program",
            _LAST,
            every=0.005,
        )


def _save(request: Save, memory: mmap.mmap | None) -> Answer:
    try:
        return Saved(_write(request, memory))
    except FencedError as error:
        _give_up(request)
        return NotSaved(str(error), is_fenced=True)
    except OSError as error:
        _give_up(request)
        return NotSaved(f"{request.folder}: {error.strerror or error}")


def _write(request: Save, memory: mmap.mmap | None) -> str:
    store, file = Store(request.folder), request.file
    draft = _draft(store, request)
    if request.is_retry:
        done = _left_by_a_dead_writer(store, draft, request)
        if done is not None:
            return done
    draft.mkdir(parents=True, exist_ok=True)
    _mark(draft, file).unlink(missing_ok=True)
    entry = _write_file(draft / file, request.header, memory, request.size)
    if request.rank != 0:
        # Rank 0's writer sees this, through the folder that both share.
        write_whole(_mark(draft, file), json.dumps(entry).encode())
        return draft.name
    written = {file: entry}
    for rank in range(1, request.parts):
        name = file.replace("-0-of-", f"-{rank}-of-")
        written[name] = _part_of(draft, name)
    checkpoint = store.commit(draft, {**request.manifest, "files": written})
    for mark in checkpoint.path.glob(".*.done"):
        mark.unlink()
    _expire(store, checkpoint, request)
    return checkpoint.name


def _draft(store: Store, request: Save) -> Path:
    return store.draft(request.step, request.manifest["generation"])


def _left_by_a_dead_writer(store: Store, draft: Path, request: Save) -> str | None:
    """What the dead writer had finished, if it died after that: then nothing is removed and written again."""
    if request.rank != 0:
        is_committed = any(draft.name.endswith(checkpoint.name) for checkpoint in store.checkpoints())
        return draft.name if is_committed or _mark(draft, request.file).exists() else None
    identity = ("run", "generation", "step", "saved")
    for checkpoint in store.checkpoints():
        if all(checkpoint.manifest.get(key) == request.manifest[key] for key in identity):
            _expire(store, checkpoint, request)
            return checkpoint.name
    return None


def _expire(store: Store, newest: Checkpoint, request: Save) -> None:
    held, scores = store.checkpoints(), score_file.read(store.folder)
    scored = {one.name: metrics for one in held if (metrics := scores.of(one)) is not None}
    for expired in request.retention.expired(held, scored, scores.is_followed):
        if expired.name != newest.name:
            try:
                store.delete(expired)
            except OSError:
                pass  # another process was faster, or the next save succeeds: this one is on the disk


def _give_up(request: Save) -> None:
    """Leave no partial checkpoint on a disk that may be full, and no rank waiting for it."""
    draft = _draft(Store(request.folder), request)
    if request.rank == 0:
        shutil.rmtree(draft, ignore_errors=True)
        return
    try:
        _mark(draft, request.file, "failed").touch()
    except OSError:
        pass  # then rank 0's writer waits until its patience ends


def _write_file(path: Path, header: bytes, memory: mmap.mmap | None, count: int) -> WrittenEntry:
    is_kept = _has_room(len(header) + count)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(fd, memoryview(header))
        crc = zlib.crc32(header)
        view = memoryview(memory) if memory is not None else memoryview(b"")
        for at in range(0, count, _CHUNK):
            chunk = view[at : min(at + _CHUNK, count)]
            _write_all(fd, chunk)
            crc = zlib.crc32(chunk, crc)
            os.fdatasync(fd)
            if not is_kept:
                _forget(fd)
        os.fsync(fd)
        mark = fingerprint(os.fstat(fd))
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)  # a full disk needs the room
        raise
    os.close(fd)
    entry: WrittenEntry = {"size": len(header) + count, "crc32": f"{crc:08x}"}
    return entry if mark is None else {**entry, "untouched": mark}


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _has_room(size: int) -> bool:
    """Whether the file may stay in memory, where the next start finds it: only if nothing must make room."""
    return control_group.free_memory() > _ROOM * size


def _forget(fd: int) -> None:
    """Drop what is on the disk from memory: it must not displace anything that training uses."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _part_of(draft: Path, name: str) -> WrittenEntry:
    """Wait for the file of another rank."""
    mark = _mark(draft, name)

    def is_written() -> bool:
        if mark.exists():
            return True
        if _mark(draft, name, "failed").exists():
            raise OSError(f"another rank could not write {name}")
        return False

    wait_for(is_written, f"{name} of another rank", _PARTS_PATIENCE, every=0.01)
    entry: WrittenEntry = json.loads(mark.read_text())
    return entry


def _mark(draft: Path, name: str, kind: str = "done") -> Path:
    return draft / f".{name}.{kind}"
