"""The writer: a process of its own that brings a copied state to the disk while the training goes on.

It is a fresh interpreter without a framework, started before the first save. The state lies in memory that
both share; a message says how it is laid out. Written beside, made durable, committed by one rename. A disk
that fails is told and nothing else happens: the last good checkpoint stays where it is.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import socket
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from oarlock.checkpoints.retention import Retention
from oarlock.checkpoints.store import Checkpoint, FencedError, Store
from oarlock.system import fd_frames

_CHUNK = 32 << 20  # written, then told to the disk: no heap of dirty pages builds up in memory
_PARTS_PATIENCE = 600.0  # seconds for the other ranks' parts of a sharded state
_CALM = 10  # of the priorities of Unix: training goes first


def main() -> None:
    """`writer FD`: the socket to the program. It ends when the program closes it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the program, which will close the socket
    os.nice(_CALM)
    sock = socket.socket(fileno=int(sys.argv[1]))
    memory: mmap.mmap | None = None
    while True:
        message, fds = fd_frames.receive(sock)
        if message is None:
            return
        if fds:
            memory = mmap.mmap(fds[0], 0, prot=mmap.PROT_READ)
            os.close(fds[0])
        if "save" in message:
            try:
                fd_frames.send(sock, _save(message["save"], memory))
            except ConnectionError:
                return


def _save(told: dict[str, Any], memory: mmap.mmap | None) -> dict[str, Any]:
    began = time.monotonic()
    try:
        name = _write(told, memory)
    except FencedError as error:
        _give_up(told)
        return {"failed": str(error), "fenced": True}
    except OSError as error:
        _give_up(told)
        return {"failed": f"{told['folder']}: {error.strerror or error}"}
    return {"saved": name, "step": told["manifest"]["step"], "seconds": time.monotonic() - began}


def _write(told: dict[str, Any], memory: mmap.mmap | None) -> str:
    store, manifest, file = Store(told["folder"]), told["manifest"], told["file"]
    draft = store.draft(manifest["step"], manifest["generation"])
    if told["again"]:
        done = _left_by_a_dead_writer(store, draft, told)
        if done is not None:
            return done
    draft.mkdir(parents=True, exist_ok=True)
    _note(draft, file).unlink(missing_ok=True)
    size, crc = _write_file(draft / file, told["header"].encode("latin-1"), memory, told["bytes"])
    if told["rank"] != 0:
        _hand_in(draft, file, size, crc)
        return draft.name
    written = {file: {"size": size, "crc32": crc}}
    for rank in range(1, told["parts"]):
        name = file.replace("-0-of-", f"-{rank}-of-")
        written[name] = _part_of(draft, name)
    checkpoint = store.commit(draft, {**manifest, "files": written})
    for note in checkpoint.path.glob(".*.done"):
        note.unlink()
    _expire(store, checkpoint, told)
    return checkpoint.name


def _left_by_a_dead_writer(store: Store, draft: Path, told: dict[str, Any]) -> str | None:
    """It may have died when all was done: then nothing is taken away, not for a moment, to do it again."""
    if told["rank"] != 0:
        is_committed = any(draft.name.endswith(one.name) for one in store.checkpoints())
        return draft.name if is_committed or _note(draft, told["file"]).exists() else None
    manifest = told["manifest"]
    for checkpoint in store.checkpoints():
        if all(
            checkpoint.manifest.get(key) == manifest[key] for key in ("run", "generation", "step", "saved")
        ):
            _expire(store, checkpoint, told)
            return checkpoint.name
    return None


def _expire(store: Store, newest: Checkpoint, told: dict[str, Any]) -> None:
    for expired in Retention(**told["retention"]).expired(store.checkpoints()):
        if expired.name != newest.name:
            try:
                store.delete(expired)
            except OSError:
                pass  # somebody else was faster, or the next save succeeds: this one is on the disk


def _give_up(told: dict[str, Any]) -> None:
    """Leave no half of a checkpoint on a disk that may be full, and nobody waiting for it."""
    draft = Store(told["folder"]).draft(told["manifest"]["step"], told["manifest"]["generation"])
    if told["rank"] == 0:
        shutil.rmtree(draft, ignore_errors=True)
        return
    try:
        _note(draft, told["file"], "failed").touch()
    except OSError:
        pass  # then rank 0's writer loses its patience


def _write_file(path: Path, header: bytes, memory: mmap.mmap | None, count: int) -> tuple[int, str]:
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
            _forget(fd)
        os.fsync(fd)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)  # what a full disk needs most is room
        raise
    os.close(fd)
    return len(header) + count, f"{crc:08x}"


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _forget(fd: int) -> None:
    """It is on the disk: its copy in memory need not push out anything that training uses."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _hand_in(draft: Path, name: str, size: int, crc: str) -> None:
    """Tell rank 0's writer, through the folder that both see, that this part is on the disk."""
    note = _note(draft, name, "part")
    note.write_text(f"{size} {crc}")
    note.replace(_note(draft, name))


def _part_of(draft: Path, name: str) -> dict[str, Any]:
    note, deadline = _note(draft, name), time.monotonic() + _PARTS_PATIENCE
    while not note.exists():
        if _note(draft, name, "failed").exists():
            raise OSError(f"{name} of another rank could not be written")
        if time.monotonic() > deadline:
            raise OSError(f"{name} of another rank has not come within {_PARTS_PATIENCE:g} s")
        time.sleep(0.01)
    size, crc = note.read_text().split()
    return {"size": int(size), "crc32": crc}


def _note(draft: Path, name: str, kind: str = "done") -> Path:
    return draft / f".{name}.{kind}"
