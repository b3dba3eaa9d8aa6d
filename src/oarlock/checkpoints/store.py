"""A folder of checkpoints: what is complete, what is whole, and who may add to it.

    .fence                   the run and generation that may commit; any other is refused
    step-0000000120-g3/      a complete checkpoint: it appears by one rename, when all of it is on the disk
        manifest.json        what it is of, with the size and checksum of every file
        state.safetensors    the tensors (state-0-of-2.safetensors, ... where each rank wrote its part)
    .saving-...              half written: removed when the next generation starts

Nothing here knows a framework. Agents raise the fence, writers commit, programs and the command line read.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
_NAME = re.compile(r"step-([0-9]{1,18})-g([0-9]{1,18})")
_CRC32 = re.compile("[0-9a-f]{8}")
_DRAFT = ".saving-"
_DOOMED = ".deleting-"
_CHUNK = 1 << 22
_LONGEST_NAME, _LONGEST_PART, _DEEPEST = 1024, 255, 64  # bytes, bytes, folders
_LOCK_PATIENCE = 10.0  # seconds; whoever holds it only renames something

Manifest = dict[str, Any]


class FencedError(Exception):
    """Somebody else writes to this folder now."""


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    generation: int
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file["size"] for file in self.manifest["files"].values())


class Store:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def names(self) -> list[str]:
        """Newest first, whole or not."""
        return [path.name for _, _, path in reversed(self._named())]

    def checkpoints(self) -> list[Checkpoint]:
        """All whose manifest can be read, oldest first. Cheap: it reads no tensors."""
        found = (self.read(path) for _, _, path in self._named())
        return [checkpoint for checkpoint in found if isinstance(checkpoint, Checkpoint)]

    def newest(self, among: Sequence[str] | None = None) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole one, all of it read and compared, and a line for each newer one that is torn."""
        complaints: list[str] = []
        for _, _, path in reversed(self._named()):
            if among is not None and path.name not in among:
                continue
            checkpoint = self.read(path)
            trouble = checkpoint if isinstance(checkpoint, str) else verify(checkpoint)
            if isinstance(checkpoint, Checkpoint) and trouble is None:
                return checkpoint, complaints
            complaints.append(f"{path.name} is not whole and is passed over: {trouble}")
        return None, complaints

    def broken(self) -> list[tuple[str, str]]:
        """(name, why) of those whose manifest cannot even be read."""
        found = ((path.name, self.read(path)) for _, _, path in self._named())
        return [(name, why) for name, why in found if isinstance(why, str)]

    # Who may write

    def raise_fence(self, run: str, generation: int) -> None:
        """From now on only this generation of this run commits here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            draft = self.folder / ".fence.part"
            draft.write_text(json.dumps({"run": run, "generation": generation}))
            sync(draft)
            draft.replace(self.folder / ".fence")
        sync(self.folder)

    def fence(self) -> tuple[str, int] | None:
        try:
            data = json.loads((self.folder / ".fence").read_text())
            return str(data["run"]), int(data["generation"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return "?", -1

    def draft(self, step: int, generation: int) -> Path:
        return self.folder / f"{_DRAFT}{name_of(step, generation)}"

    def commit(self, draft: Path, manifest: Manifest) -> Checkpoint:
        """Make a draft whose files are on the disk a checkpoint, unless the fence was raised meanwhile."""
        step, generation = manifest["step"], manifest["generation"]
        _write_manifest(draft / "manifest.json", manifest)
        sync(draft)
        path = self.folder / name_of(step, generation)
        with self._locked():
            fence = self.fence()
            if fence is not None and fence != (manifest["run"], generation):
                raise FencedError(f"{self.folder} belongs to generation {fence[1]} of {fence[0]} now")
            self.adopt(draft, path.name)
        sync(self.folder)
        return Checkpoint(path, step, generation, manifest)

    def adopt(self, draft: Path, name: str) -> None:
        """Give a draft that is whole its place, whatever is there of an earlier attempt at this very step."""
        path = self.folder / name
        if path.exists():
            _remove(path)
        draft.rename(path)

    def clean(self) -> None:
        """Away with what was half written or half deleted when somebody died."""
        for path in self._entries():
            if path.name.startswith((_DRAFT, _DOOMED)):
                _erase(path)

    def delete(self, checkpoint: Checkpoint) -> None:
        _remove(checkpoint.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Between looking at the fence and renaming, nobody raises it. A dead holder's lock is free."""
        import fcntl

        deadline = time.monotonic() + _LOCK_PATIENCE
        with (self.folder / ".lock").open("ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"somebody holds {self.folder}/.lock for too long") from None
                    time.sleep(0.005)
                except OSError as error:
                    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                        break  # a file system without locks: the fence is still looked at
                    raise
            yield

    def _named(self) -> list[tuple[int, int, Path]]:
        found = ((_NAME.fullmatch(path.name), path) for path in self._entries())
        return sorted((int(name[1]), int(name[2]), path) for name, path in found if name)

    def _entries(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    @staticmethod
    def read(path: Path) -> Checkpoint | str:
        """The checkpoint in a folder, or what is wrong with its manifest."""
        try:
            manifest = unseal((path / "manifest.json").read_bytes())
        except FileNotFoundError:
            return "it has no manifest"
        except OSError as error:
            return f"its manifest cannot be read ({error.strerror})"
        if isinstance(manifest, str):
            return manifest
        step, generation = position(path.name) or (manifest.get("step", -1), manifest.get("generation", -1))
        return is_not_of(manifest, step, generation) or Checkpoint(path, step, generation, manifest)


def verify(checkpoint: Checkpoint) -> str | None:
    """Read every byte of it. None, or what is wrong."""
    for name, told in checkpoint.manifest["files"].items():
        try:
            size, crc = checksum(checkpoint.path / name)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if size != told["size"]:
            return f"{name} has {size} bytes instead of {told['size']}"
        if crc != told["crc32"]:
            return f"{name} has changed since it was written"
    return None


def checksum(path: Path) -> tuple[int, str]:
    size = crc = 0
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK))
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return size, f"{crc:08x}"


def stays_inside(name: str) -> bool:
    """Whether it is a plain relative name, with `/`, of something below where it is taken from."""
    try:
        parts = name.encode("utf-8", "surrogateescape").split(b"/")
    except UnicodeEncodeError:  # no file system has such a name
        return False
    return (
        len(parts) <= _DEEPEST
        and len(b"/".join(parts)) <= _LONGEST_NAME
        and all(part not in (b"", b".", b"..") and len(part) <= _LONGEST_PART for part in parts)
        and "\0" not in name
    )


def leads_out(name: str, target: str) -> bool:
    """Whether a link of that name may lead out of the folder that the name is relative to. `..` counts only
    at the start: after another link it would mean something else than it says."""
    parts = target.split("/")
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    rest = "/".join(parts[ups:])
    is_plain = target == "." or stays_inside(rest) or (ups > 0 and not rest)
    return not stays_inside(name) or ups > name.count("/") or not is_plain


def name_of(step: int, generation: int) -> str:
    return f"step-{step:010d}-g{generation}"


def _write_manifest(path: Path, manifest: Manifest) -> None:
    path.write_text(json.dumps({"crc32": seal(manifest), "manifest": manifest}))
    sync(path)


def position(name: str) -> tuple[int, int] | None:
    """Step and generation of a checkpoint of that name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def unseal(data: bytes) -> Manifest | str:
    """A manifest that makes sense, wherever it comes from; or what is wrong with it."""
    try:
        sealed = json.loads(data)
        manifest: Manifest = sealed["manifest"]
        if sealed["crc32"] != seal(manifest):
            return "its manifest has changed since it was written"
        if manifest["format"] != FORMAT:
            return f"it has format {str(manifest['format'])[:20]}, and this version reads {FORMAT}"
        files, metrics = manifest["files"], manifest.get("metrics") or {}
        makes_sense = (
            isinstance(files, dict) and isinstance(metrics, dict) and all(map(_is_told, files.values()))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "its manifest is damaged"
    if not makes_sense:
        return "its manifest is damaged"
    for name in files:
        folders = [name[:at] for at, letter in enumerate(name) if letter == "/"]
        if not stays_inside(name) or name == "manifest.json" or any(folder in files for folder in folders):
            return f"its manifest names a file that cannot be in it ({name[:80]!a})"
    return manifest


def is_not_of(manifest: Manifest, step: int, generation: int) -> str | None:
    """What is wrong with it as the manifest of that step."""
    held = manifest.get("step"), manifest.get("generation")
    if all(type(one) is int and one >= 0 for one in held) and held == (step, generation):
        return None
    return "its manifest is not of its step and generation"


def _is_told(file: Any) -> bool:
    """Whether it is the size and the checksum of a file."""
    size, crc = file["size"], file["crc32"]
    return type(size) is int and size >= 0 and isinstance(crc, str) and _CRC32.fullmatch(crc) is not None


def seal(manifest: Manifest) -> str:
    """What a manifest is known by: one that has changed has another."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    """Out of sight first: a checkpoint is never seen half deleted."""
    doomed = path.with_name(f"{_DOOMED}{path.name}-{os.getpid()}")
    path.rename(doomed)
    _erase(doomed)


def _erase(path: Path) -> None:
    """Never what a link leads to."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
