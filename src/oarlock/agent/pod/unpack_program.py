"""Unpack what the client sent into the program's folder: once, as a whole, before anything runs there."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from oarlock.agent.protocol.spec import Spec
from oarlock.agent.snapshots.program_files import ProgramFolder
from oarlock.system.pods import sent_archive


def unpack(spec: Spec, code: Path) -> None:
    """Unpack the parts in `code`, unless the folder exists: then it holds what tasks have written since.

    The folder appears with a rename, because pods that share a claim may all be doing this.
    """
    program = Path(spec.cwd)
    if program.exists():
        return
    draft = program.with_name(f".{program.name}-{secrets.token_hex(4)}")
    draft.mkdir(parents=True)
    try:
        sent_archive.unpack(code, "program.tar.gz", draft)
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
