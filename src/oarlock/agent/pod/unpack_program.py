"""Unpack what the client sent into the program's folder: once, as a whole, before anything runs there."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.system.safe_names import leads_out, stays_inside


def unpack(spec: Spec, code: Path) -> None:
    """Unpack the parts in `code`, unless the folder exists: then it holds what tasks have written since.

    The folder appears with a rename, because pods that share a claim may all be doing this.
    """
    program = Path(spec.cwd)
    if program.exists():
        return
    packed = b"".join(path.read_bytes() for path in sorted(code.glob("program.tar.gz.*")))
    draft = program.with_name(f".{program.name}-{secrets.token_hex(4)}")
    draft.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r|gz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(draft, _judged(archive), filter="data")
            else:
                archive.extractall(draft, _judged(archive))
        sent = [
            Path(here, name).relative_to(draft).as_posix()
            for here, _, names in os.walk(draft)
            for name in names
        ]
        ProgramFolder.of(spec).remember_sent(sent)
        draft.rename(program)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not program.exists():
            raise


def _judged(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, all checked: files, and links that stay inside. Not every Python 3.9 has tarfile's
    filters."""
    links: set[str] = set()
    for member in archive:
        name = member.name
        is_link = member.issym() and not leads_out(name, member.linkname)
        is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        folders = (name[:at] for at, character in enumerate(name) if character == "/")
        if not (is_link or is_plain) or not stays_inside(name) or any(folder in links for folder in folders):
            raise OSError(errno.EINVAL, "it does not belong in a program's folder", name)
        links |= {name} if is_link else set()
        yield member
