"""The program that sends a pod's folders: a JSON line and a tar stream on stdout, then a JSON line on stderr.

It travels as text (`python3 -c`), so it imports nothing of Oarlock, and any Python from 3.7 on runs it.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

_MOST = 20  # names in the report of what changed or was skipped
# In a checkpoint folder: the fence, and what is half written or half deleted.
_CHECKPOINTS = "checkpoints"
_MARKS = (".fence", ".fence.part", ".lock")
_HALF = (".saving-", ".deleting-")


class _Entry(NamedTuple):
    name: str  # in the archive
    path: Path
    kind: str  # file, folder, link


def main() -> None:
    """Send the folders of the argument: a JSON list of [name in the archive, path here].

    A third item is a file that lists what was sent to the folder: that is left out, unless it has changed.
    """
    entries: list[_Entry] = []
    absent: list[str] = []
    skipped: list[str] = []
    for name, path, *sent in json.loads(sys.argv[1]):
        found = list(_walk(name, Path(path), skipped))
        if sent:
            found = _only_written(found, name, Path(sent[0]))
        entries += found
        if all(entry.kind == "folder" for entry in found):
            absent.append(name)
    _announce({"total": sum(_size(entry) for entry in entries)})
    files, changed = _send(entries)
    _say({"files": files, "absent": absent, "changed": changed[:_MOST], "skipped": skipped[:_MOST]})


def _walk(name: str, path: Path, skipped: list[str]) -> Iterator[_Entry]:
    """List everything. A link that leads out of the folder is sent as its target, if that is a file."""
    if path.is_file():
        yield _Entry(name, path, "file")
        return
    root = Path(os.path.realpath(path))
    for here, folders, files in os.walk(root):
        below = os.path.relpath(here, root)
        inside = name if below == "." else f"{name}/{below}"
        if name == _CHECKPOINTS and below == ".":
            folders[:] = [one for one in folders if not one.startswith(_HALF)]
            files = [one for one in files if one not in _MARKS]
        yield _Entry(inside, Path(here), "folder")
        links = [folder for folder in folders if Path(here, folder).is_symlink()]
        for one in sorted(files + links):
            source = Path(here, one)
            real = Path(os.path.realpath(source))
            if not source.is_symlink():
                if source.is_file():
                    yield _Entry(f"{inside}/{one}", source, "file")
            elif real.exists() and root in (real, *real.parents):
                yield _Entry(f"{inside}/{one}", source, "link")
            elif real.is_file():
                yield _Entry(f"{inside}/{one}", real, "file")
            else:
                skipped.append(f"{inside}/{one}")


def _only_written(entries: list[_Entry], root: str, sent: Path) -> list[_Entry]:
    """Leave out what was sent and has not changed (it has no modification time), and Python's own files."""
    try:
        names = {f"{root}/{name}" for name in json.loads(sent.read_text())}
    except FileNotFoundError:
        return []  # the program was never unpacked here
    return [
        entry
        for entry in entries
        if "__pycache__" not in entry.name.split("/")
        and not (entry.name in names and (entry.kind != "file" or entry.path.stat().st_mtime_ns == 0))
    ]


def _size(entry: _Entry) -> int:
    try:
        return entry.path.stat().st_size if entry.kind == "file" else 0
    except OSError:
        return 0


def _send(entries: list[_Entry]) -> tuple[int, list[str]]:
    """Send the entries; returns the number of files and the names of those that changed meanwhile."""
    files, changed = 0, []
    with tarfile.open(
        fileobj=sys.stdout.buffer,
        mode="w|",
        bufsize=1 << 18,
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        for entry in entries:
            try:
                if not _add(archive, entry):
                    changed.append(entry.name)
                files += entry.kind != "folder"
            except FileNotFoundError:  # deleted since it was listed
                changed.append(entry.name)
    sys.stdout.flush()
    return files, changed


def _add(archive: tarfile.TarFile, entry: _Entry) -> bool:
    """Send a file; returns whether it stayed the same. A file that shrinks is padded with zeros."""
    member = tarfile.TarInfo(entry.name)
    if entry.kind == "folder":
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
        return True
    if entry.kind == "link":
        member.type = tarfile.SYMTYPE
        member.linkname = os.path.relpath(os.path.realpath(entry.path), entry.path.parent)
        archive.addfile(member)
        return True
    with entry.path.open("rb") as file:
        before = os.fstat(file.fileno())
        member.size, member.mtime, member.mode = before.st_size, int(before.st_mtime), before.st_mode & 0o777
        archive.addfile(member, _Exactly(file))  # type: ignore[arg-type]  # read is all it needs
        after = os.fstat(file.fileno())
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


class _Exactly:
    """A file that returns as many bytes as requested, padded with zeros."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, size: int) -> bytes:
        piece = self.file.read(size)
        return piece + bytes(size - len(piece))


def _announce(header: dict[str, Any]) -> None:
    """Write the line before the archive, which tells the receiver how much may follow."""
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    sys.stdout.buffer.flush()


def _say(report: dict[str, Any]) -> None:
    sys.stderr.write(json.dumps(report) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
