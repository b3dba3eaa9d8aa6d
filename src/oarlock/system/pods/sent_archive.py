"""Unpacks an archive that a client sent in parts: files, and links that stay inside. Nothing else."""

from __future__ import annotations

import errno
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from oarlock.system.safe_names import leads_out, stays_inside


def unpack(code: Path, name: str, folder: Path) -> None:
    """Unpack `name`.00, `name`.01, ... in `code` below a folder. Raises OSError."""
    packed = b"".join(path.read_bytes() for path in sorted(code.glob(f"{name}.*")))
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r|gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, _judged(archive), filter="data")
        else:
            archive.extractall(folder, _judged(archive))


def _judged(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, all checked: files, and links that stay inside. Some versions of Python 3.9 lack tarfile's
    filters."""
    links: set[str] = set()
    for member in archive:
        name = member.name
        is_link = member.issym() and not leads_out(name, member.linkname)
        is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        folders = (name[:at] for at, character in enumerate(name) if character == "/")
        if not (is_link or is_plain) or not stays_inside(name) or any(folder in links for folder in folders):
            raise OSError(errno.EINVAL, "it does not belong in a folder that was sent", name)
        links |= {name} if is_link else set()
        yield member
