"""Exported versions of a model as one archive for a pod; the same files always give the same bytes.

A file that may hold credentials is refused: everyone who may read the namespace can read what travels, and a
model from which it was left out in silence might not work.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from oarlock.errors import JobError
from oarlock.models.model_versions import Version
from oarlock.program import folder_scan
from oarlock.program.bundle import OverLimit, Squeezed
from oarlock.program.credentials import is_credential, is_key
from oarlock.records import runs
from oarlock.wording import printable

_WAYS = (
    "train it with `oarlock run --on kubernetes` and serve the run, whose claim the pods then mount, "
    "or put it into a bucket and serve s3://..., gs://... or az://..."
)


def pack(folder: Path, versions: Sequence[Version]) -> bytes:
    """Pack versions of a folder.

    Raises JobError if there is none, they are too large to travel, the folder holds more than a model or what
    looks like credentials, or a link leads out of it.
    """
    if not versions:
        raise JobError(f"{printable(str(folder))} holds no exported model; `oarlock.export` writes one")
    squeezed, top = Squeezed(), folder.resolve()
    _refuse_private(top)
    try:
        with tarfile.TarFile(
            fileobj=squeezed,  # type: ignore[arg-type]  # write and tell are all it needs
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for version in versions:
                _add(archive, version, top)
        return squeezed.finish()
    except OverLimit:
        raise JobError(
            f"{printable(str(folder))} is more than 8 MiB even when compressed, and at most that travels to "
            f"a cluster; {_WAYS}"
        ) from None
    except OSError as problem:
        name = printable(str(problem.filename or folder))
        raise JobError(f"{name}: cannot be read: {problem.strerror or problem}") from None


def _refuse_private(folder: Path) -> None:
    if (private := folder_scan.whose(folder)) is not None:
        raise JobError(
            f"{printable(str(folder))} would travel to the cluster, and is {private}: "
            "put the model into a folder of its own and serve that"
        )


def _add(archive: tarfile.TarFile, version: Version, top: Path) -> None:
    place = _target(version.path, top)
    for name, path in _files(place, str(version.number), top, (place,)):
        member = tarfile.TarInfo(name)
        with path.open("rb") as file:
            member.size = path.stat().st_size  # mtime, uid and gid are 0, without owner names
            archive.addfile(member, file)


def _files(folder: Path, name: str, top: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """The files below a folder that travel: what the archive calls them, and where they are.

    Links inside of the model's folder are followed: a version may share files with another.
    `above`: the folders on the way here, so that a link to one of them does not loop forever.
    """
    for entry in sorted(folder.iterdir()):
        if not entry.exists():
            continue  # a link that leads nowhere
        target, inside = _target(entry, top), f"{name}/{entry.name}"
        is_folder = target.is_dir()
        if any(_is_private(path, is_folder) for path in (inside, target.relative_to(top).as_posix())):
            raise _private(entry)
        if is_folder:
            if target not in above and target != runs.home().resolve():
                yield from _files(target, inside, top, (*above, target))
        elif target.is_file():
            if is_key(target.name, folder_scan.head(target)):
                raise _private(entry)
            yield inside, target


def _target(path: Path, top: Path) -> Path:
    """Where a file or folder is. Raises JobError if a link leads out of the model's folder."""
    target = Path(os.path.realpath(path))
    if target.is_relative_to(top):
        return target
    raise JobError(
        f"{printable(str(path))}: a link to {printable(str(target))}, outside of the model's folder, "
        "does not travel to a cluster; put a copy in its place"
    )


def _private(path: Path) -> JobError:
    return JobError(
        f"{printable(str(path))} may hold credentials, which everyone who may read the namespace would see; "
        "move it out of the model's folder, or rename it if it is part of the model"
    )


def _is_private(path: str, is_folder: bool) -> bool:
    """Whether its name, or that of a folder on the way to it, suggests credentials."""
    parents = (str(parent) for parent in PurePosixPath(path).parents)
    return is_credential(path, is_folder) or any(is_credential(parent, True) for parent in parents)
