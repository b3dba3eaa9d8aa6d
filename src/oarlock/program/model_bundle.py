"""Exported versions of a model as one archive for a pod; the same files always give the same bytes."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

from oarlock.errors import JobError
from oarlock.models.model_versions import Version
from oarlock.program.bundle import OverLimit, Squeezed
from oarlock.wording import printable

_WAYS = (
    "train it with `oarlock run --on kubernetes` and serve the run, whose claim the pods then mount, "
    "or put it into a bucket and serve s3://..., gs://... or az://..."
)


def pack(folder: Path, versions: Sequence[Version]) -> bytes:
    """Pack versions of a folder. Raises JobError if there is none, or if they are too large to travel."""
    if not versions:
        raise JobError(f"{printable(str(folder))} holds no exported model; `oarlock.export` writes one")
    squeezed = Squeezed()
    try:
        with tarfile.TarFile(
            fileobj=squeezed,  # type: ignore[arg-type]  # write and tell are all it needs
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for version in versions:
                _add(archive, version)
        return squeezed.finish()
    except OverLimit:
        raise JobError(
            f"{printable(str(folder))} is more than 8 MiB even when compressed, and at most that travels to "
            f"a cluster; {_WAYS}"
        ) from None
    except OSError as problem:
        name = printable(str(problem.filename or folder))
        raise JobError(f"{name}: cannot be read: {problem.strerror or problem}") from None


def _add(archive: tarfile.TarFile, version: Version) -> None:
    """Links are followed: a version may share files with another."""
    for path in sorted(version.path.rglob("*")):
        if not path.is_file():
            continue
        member = tarfile.TarInfo(f"{version.number}/{path.relative_to(version.path).as_posix()}")
        with path.open("rb") as file:
            member.size = path.stat().st_size  # mtime, uid and gid are 0, without owner names
            archive.addfile(member, file)
