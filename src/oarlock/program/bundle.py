"""The program's folder as it travels into a pod: one archive that is the same whenever the folder is.

What the ignore files leave out (`ignored`) and what may hold credentials stays behind; a link that leads out
is refused. Nothing is written here, and a folder that is left out is not looked into.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.agent.protocol.pod_paths import AGENT
from oarlock.errors import JobError
from oarlock.program.credentials import is_key
from oarlock.program.ignore_files import CREDENTIAL, Ignored
from oarlock.records import runs
from oarlock.wording import printable

if TYPE_CHECKING:
    from importlib.abc import Traversable

LIMIT = 8 * 1024 * 1024  # compressed

# What travels of Oarlock itself: whole folders, and the package's own `__init__`.
TRAVELS = ("run", "system", "checkpoints", "training", "agent")
# Unpacked first, so that every later process finds the modules compiled. The first process of a pod has no
# default signals: one that is asked to leave before its loop runs would be waited for through its grace.
BOOT = f"""import io, os, signal, sys, zipfile

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
place = "{AGENT}"
with zipfile.ZipFile(sys.argv[0]) as archive:
    modules = io.BytesIO(archive.read("modules.zip"))
with zipfile.ZipFile(modules) as archive:
    archive.extractall(place)
sys.path[0] = place
from oarlock.agent.pod.main import main

sys.exit(main())
"""

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
_WHAT_TO_DO = (
    "list what the program does not need in .oarlockignore, "
    "or keep data in a volume or a bucket (storage.data)"
)


@dataclass(frozen=True)
class Bundle:
    data: bytes  # a .tar.gz
    files: tuple[str, ...]  # relative, with `/`; a name that is not UTF-8 as os.fsdecode has it
    size: int  # uncompressed
    withheld: tuple[str, ...] = ()  # what stays behind because it may hold credentials


def pack(folder: Path) -> Bundle:
    """Everything below the folder that is not ignored; raises JobError if that cannot be, or is too much."""
    try:
        folder = folder.resolve()
        if not folder.is_dir():
            raise JobError(f"{printable(str(folder))}: no such folder")
        _refuse_private(folder)
        withheld: list[str] = []
        found = _settle_links(folder, list(_walk(folder, withheld)))
    except OSError as problem:
        raise _unreadable(problem.filename or folder, problem) from None
    squeezed = _Squeezed()
    files: list[str] = []
    size = 0
    try:
        # Names as the bytes they are: a pod in any locale unpacks what was packed.
        with tarfile.TarFile(
            fileobj=squeezed,  # type: ignore[arg-type]  # write and tell are all it needs
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for one in found:
                written = _add(archive, one)
                if written is CREDENTIAL:
                    withheld.append(one.path)
                elif isinstance(written, int):
                    files.append(one.path)
                    size += written
        return Bundle(squeezed.finish(), tuple(files), size, tuple(sorted(withheld)))
    except _TooMuch:
        raise JobError(_too_much(folder, found)) from None


def left_behind(folder: Path, path: str) -> str | None:
    """Why something that is below the folder does not travel; None if it does, or is not there."""
    folder = folder.resolve()
    ignored, here = Ignored.above(folder), ""
    for name in path.split("/"):
        place = folder / here / name
        if not place.exists():
            return None
        ignored = ignored.at(folder / here, here)
        inside = _judge(ignored, here + name, place, place.is_dir())
        if isinstance(inside, str):
            return inside
        ignored, here = inside, f"{here}{name}/"
    is_withheld = place.is_file() and is_key(path, _head(place)) and not ignored.is_named(path)
    return CREDENTIAL if is_withheld else None


def agent_zip() -> bytes:
    """The part of Oarlock that runs in a pod; `python agent.zip` starts it, with nothing installed.

    The modules are stored in an archive of their own, which is compressed as a whole: 143 kB instead of 185.
    """
    modules = _zip(_travelling(), zipfile.ZIP_STORED)
    return _zip({"__main__.py": BOOT.encode(), "modules.zip": modules}, zipfile.ZIP_DEFLATED)


def _travelling() -> dict[str, bytes]:
    package = resources.files("oarlock")
    texts = {"oarlock/__init__.py": package.joinpath("__init__.py").read_bytes()}
    for name in TRAVELS:
        texts |= _modules(package.joinpath(name), f"oarlock/{name}")
    return texts


def _modules(folder: Traversable, path: str) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for found in folder.iterdir():
        if found.is_dir():
            texts |= _modules(found, f"{path}/{found.name}")
        elif found.name.endswith(".py"):
            texts[f"{path}/{found.name}"] = found.read_bytes()
    return texts


def _zip(files: dict[str, bytes], how: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name)  # of 1980, whenever it is made
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, files[name], how)
    return packed.getvalue()


@dataclass(frozen=True)
class _Found:
    path: str  # as in the archive
    source: str  # where its content is
    size: int = 0
    is_executable: bool = False
    link: str | None = None  # what the archive's link says
    is_link: bool = False  # found as one, and not yet settled
    is_named: bool = False  # .oarlockignore takes it along by its name


def _refuse_private(folder: Path) -> None:
    """Folders that hold more of somebody than a program."""
    home, records = Path("~").expanduser().resolve(), runs.home().resolve()
    if home.is_relative_to(folder):
        whose = "your home folder" if folder == home else f"a folder that {home} is in"
    elif folder == records or folder.is_relative_to(records / "runs"):
        whose = "where Oarlock keeps its records"
    else:
        return
    raise JobError(
        f"{printable(str(folder))} would travel to the cluster, and is {whose}: "
        "put the program into a folder of its own, and start it from there"
    )


def _walk(folder: Path, withheld: list[str]) -> Iterator[_Found]:
    waiting = [("", Ignored.above(folder))]
    while waiting:
        here, ignored = waiting.pop()
        try:
            with os.scandir(folder / here) as listing:
                entries = list(listing)
        except FileNotFoundError:
            if here:
                continue  # gone since it was listed
            raise
        ignored = ignored.at(folder / here, here)
        for entry in entries:
            path = here + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            inside = _judge(ignored, path, Path(entry.path), is_folder)
            if isinstance(inside, str):
                if inside == CREDENTIAL:
                    withheld.append(path + "/" * is_folder)
            elif is_folder:
                waiting.append((path + "/", inside))
            elif entry.is_symlink():
                yield _Found(path, entry.path, is_link=True)
            elif entry.is_file():
                try:
                    seen = entry.stat()
                except FileNotFoundError:
                    continue  # gone since it was listed
                is_executable = bool(seen.st_mode & stat.S_IXUSR)
                yield _Found(path, entry.path, seen.st_size, is_executable, is_named=inside.is_named(path))


def _judge(ignored: Ignored, path: str, place: Path, is_folder: bool) -> Ignored | str:
    """Why it stays behind; or what is known inside of it."""
    name = place.name
    is_environment = name == "venv" and (place / "pyvenv.cfg").exists()
    if name in _NEVER or name.endswith(".pyc") or is_environment:
        return f"{name} never travels"
    if is_folder and place == runs.home().resolve():
        return CREDENTIAL
    return ignored.ask(path, is_folder)


def _settle_links(folder: Path, found: list[_Found]) -> list[_Found]:
    """A link travels with its target; one that leads outside is refused. All sorted."""
    settled = {one.path: one for one in found if not one.is_link}
    travelling = {place for path in settled for place in (path, *_folders(path))}
    for one in found:
        if one.is_link and (instead := _settle(folder, one, travelling)):
            settled[one.path] = instead
    return sorted(settled.values(), key=lambda one: os.fsencode(one.path))


def _settle(folder: Path, link: _Found, travelling: set[str]) -> _Found | None:
    try:
        Path(link.source).stat()
    except PermissionError:
        raise
    except OSError:
        return None  # it leads nowhere, or in circles
    target = Path(os.path.realpath(link.source))
    if target.is_relative_to(folder):
        if target.relative_to(folder).as_posix() not in travelling:
            return None
        # Said anew, as `../../home/me/project/x` or an absolute path would mean nothing in a pod.
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
    """Those a path lies in: `a/b` and `a` and `.` for `a/b/c`."""
    yield "."
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _TooMuch(Exception):
    pass


class _Squeezed:
    """Where the archive is written: compresses, and stops the writer once there is more than may travel."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(wbits=31)  # gzip's format, without a time in it
        self._data = bytearray()
        self._written = 0

    def write(self, data: bytes) -> int:
        self._keep(self._compressor.compress(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def finish(self) -> bytes:
        self._keep(self._compressor.flush())
        return bytes(self._data)

    def _keep(self, compressed: bytes) -> None:
        self._data += compressed
        if len(self._data) > LIMIT:
            raise _TooMuch


def _add(archive: tarfile.TarFile, one: _Found) -> int | str | None:
    """How many bytes it had; CREDENTIAL if it does not travel; None if it is gone since it was found."""
    member = tarfile.TarInfo(one.path)  # mtime, uid and gid are 0, and nobody's names
    if one.link is not None:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, one.link, 0o777
        archive.addfile(member)
        return 0
    member.mode = 0o755 if one.is_executable else 0o644
    try:
        with open(one.source, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(LIMIT)
            if is_key(one.path, content) and not one.is_named:
                return CREDENTIAL
            member.size = len(content)
            if len(content) < LIMIT:  # all of it, whatever it has become since it was found
                archive.addfile(member, io.BytesIO(content))
            else:
                member.size = max(LIMIT, os.fstat(file.fileno()).st_size)
                file.seek(0)
                archive.addfile(member, file)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as problem:
        raise _unreadable(one.source, problem) from None
    return member.size


def _without_waiting(path: str, flags: int) -> int:
    """What was a file may be a pipe by now, or a link."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LIMIT)


def _unreadable(path: str | Path, problem: OSError) -> JobError:
    return JobError(
        f"{printable(str(path))}: cannot be read: {problem.strerror or problem}; "
        "if the program does not need it, list it in .oarlockignore"
    )


def _too_much(folder: Path, found: list[_Found]) -> str:
    total = sum(one.size for one in found)
    biggest = _biggest({one.path: one.size for one in found})
    width = max(len(_amount(size)) for _, size in biggest)
    return "\n".join(
        (
            f"the program's folder {printable(str(folder))} is {_amount(total)} in {len(found):,} "
            f"file{'s' * (len(found) != 1)}, more than 8 MiB even when compressed: at most that travels "
            "to a cluster",
            *(f"  {_amount(size):>{width}}  {printable(name)}" for name, size in biggest),
            _WHAT_TO_DO,
        )
    )


def _biggest(sizes: dict[str, int], most: int = 5) -> list[tuple[str, int]]:
    """Where the bytes are: a folder as one line, unless three or fewer things in it are nearly all of it."""
    children: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        name = path
        while name:
            folder = name[: name.rstrip("/").rfind("/") + 1]
            inside = children.setdefault(folder, {})
            inside[name] = inside.get(name, 0) + size
            name = folder
    shown = dict(children.get("", {}))
    while True:
        top = sorted(shown.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
        for name, size in top:
            if name in children and sum(sorted(children[name].values())[-3:]) >= 0.8 * size:
                del shown[name]
                shown |= children[name]
                break
        else:
            # What is not even a hundredth of it is no help, unless there is nothing else.
            return [pair for pair in top if pair[1] * 100 >= sum(sizes.values())] or top


def _amount(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.0f} {unit}" if size >= 10 * scale else f"{size / scale:.1f} {unit}"
    return f"{size} B"
