"""The files of a program's folder that travel into a pod, and the reasons why others do not.

Files that the ignore files exclude (`ignore_files`) and files that may hold credentials stay behind. A link
that leads out of the folder is refused. An excluded folder is not scanned. Nothing is written here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from oarlock.errors import JobError
from oarlock.program.credentials import is_key
from oarlock.program.ignore_files import CREDENTIAL, Ignored
from oarlock.records import runs
from oarlock.wording import printable

_HEAD = 1 << 17  # bytes: more than any key file has
_RECORDS = "where Oarlock keeps its records"

_NEVER = {
    ".git",
    "__pycache__",
    ".venv",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".DS_Store",
}


@dataclass(frozen=True)
class FolderEntry:
    """A file or a link that travels."""

    path: str  # in the archive: relative, with `/`
    source: str  # the file that has its content
    size: int = 0
    is_executable: bool = False
    link: str | None = None  # the target that the archive's link names
    is_link: bool = False  # a link whose target is not resolved yet
    is_named: bool = False  # .oarlockignore includes it by its name


def scan(folder: Path) -> tuple[list[FolderEntry], list[str]]:
    """List what travels, sorted, and what stays behind because it may hold credentials.

    Raises JobError if the folder cannot be read, is private, or has a link that leads out of it.
    """
    try:
        if not folder.is_dir():
            raise JobError(f"{printable(str(folder))}: no such folder")
        _refuse_private(folder)
        withheld: list[str] = []
        return _settle_links(folder, list(_walk(folder, withheld))), withheld
    except OSError as problem:
        raise unreadable(problem.filename or folder, problem) from None


def left_behind(folder: Path, path: str) -> str | None:
    """Say why a file below the folder does not travel; None if it does, or does not exist."""
    folder = folder.resolve()
    ignored, here = Ignored.above(folder), ""
    for name in path.split("/"):
        place = folder / here / name
        if not place.exists():
            return None
        ignored = ignored.at(folder / here, here)
        inside = _rules_inside(ignored, here + name, place, place.is_dir())
        if isinstance(inside, str):
            return inside
        ignored, here = inside, f"{here}{name}/"
    is_withheld = place.is_file() and is_key(path, head(place)) and not ignored.is_named(path)
    return CREDENTIAL if is_withheld else None


def unreadable(path: str | Path, problem: OSError) -> JobError:
    """The error for a file that cannot be read."""
    return JobError(
        f"{printable(str(path))}: cannot be read: {problem.strerror or problem}; "
        "if the program does not need it, list it in .oarlockignore"
    )


def whose(folder: Path) -> str | None:
    """Say what else a resolved folder holds: a home folder, or Oarlock's records. None: neither.

    What lies deeper in a run's record does not count: its model may travel.
    """
    home, records = Path("~").expanduser().resolve(), runs.home().resolve()
    if home.is_relative_to(folder):
        return "your home folder" if folder == home else f"a folder that {home} is in"
    is_record = folder in (records, records / "runs") or folder.parent == records / "runs"
    return _RECORDS if is_record else None


def head(path: Path) -> bytes:
    """Return as much of a file as `is_key` needs."""
    with path.open("rb") as file:
        return file.read(_HEAD)


def _refuse_private(folder: Path) -> None:
    """Refuse folders that hold more than a program."""
    is_record = folder.is_relative_to(runs.home().resolve() / "runs")
    private = _RECORDS if is_record else whose(folder)
    if private is None:
        return
    raise JobError(
        f"{printable(str(folder))} would travel to the cluster, and is {private}: "
        "put the program into a folder of its own and start it from there"
    )


def _walk(folder: Path, withheld: list[str]) -> Iterator[FolderEntry]:
    waiting = [("", Ignored.above(folder))]
    while waiting:
        here, ignored = waiting.pop()
        try:
            with os.scandir(folder / here) as listing:
                entries = list(listing)
        except FileNotFoundError:
            if here:
                continue  # deleted since it was listed
            raise
        ignored = ignored.at(folder / here, here)
        for entry in entries:
            path = here + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            inside = _rules_inside(ignored, path, Path(entry.path), is_folder)
            if isinstance(inside, str):
                if inside == CREDENTIAL:
                    withheld.append(path + "/" * is_folder)
            elif is_folder:
                waiting.append((path + "/", inside))
            elif entry.is_symlink():
                yield FolderEntry(path, entry.path, is_link=True)
            elif entry.is_file():
                try:
                    seen = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since it was listed
                is_executable = bool(seen.st_mode & stat.S_IXUSR)
                yield FolderEntry(
                    path, entry.path, seen.st_size, is_executable, is_named=inside.is_named(path)
                )


def _rules_inside(ignored: Ignored, path: str, place: Path, is_folder: bool) -> Ignored | str:
    """The reason why an entry stays behind, or the rules that apply inside of it."""
    name = place.name
    is_environment = name == "venv" and (place / "pyvenv.cfg").exists()
    if name in _NEVER or name.endswith(".pyc") or is_environment:
        return f"{name} never travels"
    if is_folder and place == runs.home().resolve():
        return CREDENTIAL
    return ignored.rules_inside(path, is_folder)


def _settle_links(folder: Path, found: list[FolderEntry]) -> list[FolderEntry]:
    """Keep the links whose targets travel, refuse those that lead outside, and sort everything."""
    settled = {one.path: one for one in found if not one.is_link}
    travelling = {place for path in settled for place in (path, *_folders(path))}
    for one in found:
        if one.is_link and (instead := _settle(folder, one, travelling)):
            settled[one.path] = instead
    return sorted(settled.values(), key=lambda one: os.fsencode(one.path))


def _settle(folder: Path, link: FolderEntry, travelling: set[str]) -> FolderEntry | None:
    try:
        Path(link.source).stat()
    except PermissionError:
        raise
    except OSError:
        return None  # its target does not exist, or it is a loop
    target = Path(os.path.realpath(link.source))
    if target.is_relative_to(folder):
        if target.relative_to(folder).as_posix() not in travelling:
            return None
        # Rewritten, because `../../home/me/project/x` or an absolute path would mean nothing in a pod.
        return replace(link, link=os.path.relpath(target, Path(link.source).parent))
    instead = (
        "keep data in a volume or a bucket (storage.data)" if target.is_dir() else "put a copy in its place"
    )
    raise JobError(
        f"{printable(link.source)}: a link to {printable(str(target))}, outside of the program's folder, "
        f"does not travel to a cluster; add the line /{printable(link.path)} to "
        f"{printable(str(folder))}/.oarlockignore, or {instead}"
    )


def _folders(path: str) -> Iterator[str]:
    """The folders that a path lies in: `.`, `a/b` and `a` for `a/b/c`."""
    yield "."
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
