"""The folder of checkpoints: which are complete, which are whole, and which generation may add to it.

    .fence                   the run and generation that may commit; all others are refused
    step-0000000120-g3/      a complete checkpoint: it appears by one rename, once all of it is on the disk
        manifest.json        what the checkpoint contains, with the size and checksum of every file
        state.safetensors    the tensors (state-0-of-2.safetensors, ... where each rank wrote its part)
    .saving-...              half written: removed when the next generation starts

Nothing here knows a framework. Agents raise the fence; writers commit; programs, the uploader and the
command line read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oarlock.checkpoints.manifest import FILE_NAME, Manifest, is_not_of, name_of, position, sealed, unseal
from oarlock.system.atomic_file import sync_folder, write_durably, write_whole

_FENCE, _LOCK = ".fence", ".lock"
_DRAFT = ".saving-"
_DOOMED = ".deleting-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # changes at every boot
_CHUNK = 1 << 22
_LOCK_PATIENCE = 10.0  # seconds; a holder only renames something


class FencedError(Exception):
    """Another run or generation writes to this folder now."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose manifest makes sense. Its files may still be damaged: see `verify`."""

    path: Path
    step: int
    generation: int
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.name


class Store:
    """The folder of checkpoints of one run. Creating a Store touches no disk."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def names(self) -> list[str]:
        """The names of all checkpoints, whole or not, newest first."""
        return [path.name for _, _, path in reversed(self._named())]

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints whose manifest can be read, oldest first. Cheap: it reads no tensors."""
        found = (self.read(path) for _, _, path in self._named())
        return [checkpoint for checkpoint in found if isinstance(checkpoint, Checkpoint)]

    def newest(self, among: Sequence[str] | None = None) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint, and a line for each newer damaged one. See `verify_to_restore`."""
        complaints: list[str] = []
        for _, _, path in reversed(self._named()):
            if among is not None and path.name not in among:
                continue
            checkpoint = self.read(path)
            trouble = checkpoint if isinstance(checkpoint, str) else verify_to_restore(checkpoint)
            if isinstance(checkpoint, Checkpoint) and trouble is None:
                return checkpoint, complaints
            complaints.append(f"skipped {path.name}, which is not whole: {trouble}")
        return None, complaints

    @staticmethod
    def read(path: Path) -> Checkpoint | str:
        """The checkpoint in a folder, or what is wrong with its manifest."""
        try:
            manifest = unseal((path / FILE_NAME).read_bytes())
        except FileNotFoundError:
            return "it has no manifest"
        except OSError as error:
            return f"its manifest cannot be read ({error.strerror})"
        if isinstance(manifest, str):
            return manifest
        step, generation = position(path.name) or (manifest.get("step", -1), manifest.get("generation", -1))
        return is_not_of(manifest, step, generation) or Checkpoint(path, step, generation, manifest)

    # The fence

    def raise_fence(self, run: str, generation: int) -> None:
        """Let only this generation of this run commit from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"run": run, "generation": generation}).encode()
        with self._locked():
            # Not flushed to the disk: a power cut also ends the processes that the fence keeps out, and a
            # flush would wait for the gigabytes that a dead generation was writing.
            write_whole(self.folder / _FENCE, content)

    def fence(self) -> tuple[str, int] | None:
        """The run and generation that may commit. None: any may. A fence that cannot be read admits none."""
        try:
            data = json.loads((self.folder / _FENCE).read_text())
            return str(data["run"]), int(data["generation"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return "?", -1

    # Adding and deleting

    def draft(self, step: int, generation: int) -> Path:
        """The folder to write a checkpoint in before it is committed."""
        return self.folder / f"{_DRAFT}{name_of(step, generation)}"

    def commit(self, draft: Path, manifest: Manifest) -> Checkpoint:
        """Make a draft whose files are on the disk a checkpoint. Raises FencedError if fenced off."""
        step, generation = manifest["step"], manifest["generation"]
        _write_manifest(draft, manifest)
        path = self.folder / name_of(step, generation)
        with self._locked():
            fence = self.fence()
            if fence is not None and fence != (manifest["run"], generation):
                raise FencedError(f"{self.folder} belongs to generation {fence[1]} of {fence[0]} now")
            self.adopt(draft, path.name)
        sync_folder(self.folder)
        return Checkpoint(path, step, generation, manifest)

    def adopt(self, draft: Path, name: str) -> None:
        """Rename a complete draft into place, replacing an earlier attempt at the same step."""
        path = self.folder / name
        if path.exists():
            _remove(path)
        draft.rename(path)

    def clean(self) -> None:
        """Remove what a dead process left half written or half deleted."""
        _erase(*self._left_behind())

    def clean_meanwhile(self) -> None:
        """The same in a thread, because files can be large. A half-written one is out of the way at once."""
        import threading

        doomed: list[Path] = []
        for path in self._left_behind():
            with suppress(FileNotFoundError):  # its writer is still alive and has just given up
                doomed.append(_doomed(path))
        threading.Thread(target=_erase, args=doomed, daemon=True).start()

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint. No reader ever sees it half deleted."""
        _remove(checkpoint.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No process raises the fence between reading it and renaming. A dead holder's lock is free."""
        import fcntl

        deadline = time.monotonic() + _LOCK_PATIENCE
        with os.fdopen(_open_lock(self.folder), "ab") as file:
            while True:  # not `wait_for`: this module travels alone in a command, which has to stay short
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        message = f"another process holds {self.folder}/{_LOCK} for too long"
                        raise TimeoutError(message) from None
                    time.sleep(0.005)
                except OSError as error:
                    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                        break  # a file system without locks: the fence is still read
                    raise
            yield

    def _named(self) -> list[tuple[int, int, Path]]:
        found = ((position(path.name), path) for path in self._entries())
        return sorted((*where, path) for where, path in found if where)

    def _left_behind(self) -> list[Path]:
        return [path for path in self._entries() if path.name.startswith((_DRAFT, _DOOMED))]

    def _entries(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def verify(checkpoint: Checkpoint) -> str | None:
    """Read every byte of the checkpoint. None if it is whole, else what is wrong."""
    return _trouble(checkpoint, trusts_untouched=False)


def verify_to_restore(checkpoint: Checkpoint) -> str | None:
    """The same, but skip files that are untouched since their writer computed the checksum: otherwise each
    rank of each generation reads everything twice (1.5 GB: 0.8 of 2.5 s between a kill and the next step)."""
    return _trouble(checkpoint, trusts_untouched=True)


def fingerprint(found: os.stat_result) -> str | None:
    """What the file system says about a file: it stays the same only while the file is neither changed nor
    replaced and the machine does not reboot. None if the file system cannot say."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return None
    return f"{boot} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _trouble(checkpoint: Checkpoint, trusts_untouched: bool) -> str | None:
    for name, entry in checkpoint.manifest["files"].items():
        path = checkpoint.path / name
        try:
            mark = entry.get("untouched") if trusts_untouched else None
            if mark and mark == fingerprint(path.stat()):
                continue
            size, crc = checksum(path)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if size != entry["size"]:
            return f"{name} has {size} bytes instead of {entry['size']}"
        if crc != entry["crc32"]:
            return f"{name} has changed since it was written"
    return None


def checksum(path: Path) -> tuple[int, str]:
    """Size and CRC-32 of a file, as manifests have them."""
    size = crc = 0
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK))
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return size, f"{crc:08x}"


def _open_lock(folder: Path) -> int:
    """Open the lock's file. A process that can read it can hold it and block commits: only the owner may.

    In a folder shared by a group, such as a claim with fsGroup, the group may, too.
    """
    mode = 0o660 if folder.stat().st_mode & (stat.S_IWGRP | stat.S_ISGID) else 0o600
    fd = os.open(folder / _LOCK, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
    found = os.fstat(fd)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
        with suppress(OSError):  # a file system without modes
            os.fchmod(fd, mode)  # the umask cleared bits, or an older version created it readable for all
    return fd


def _write_manifest(draft: Path, manifest: Manifest) -> None:
    write_durably(draft / FILE_NAME, sealed(manifest), mode=0o644)


def _remove(path: Path) -> None:
    """Rename first, so that no reader sees half of a checkpoint."""
    _erase(_doomed(path))


def _doomed(path: Path) -> Path:
    """The same folder under a name that marks it for deletion."""
    if path.name.startswith(_DOOMED):
        return path
    return path.rename(path.with_name(f"{_DOOMED}{path.name}-{os.getpid()}"))


def _erase(*paths: Path) -> None:
    """Delete folders; delete links, but not their targets."""
    for path in paths:
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
