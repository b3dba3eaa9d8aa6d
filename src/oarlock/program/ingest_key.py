"""The key of an ingest: a digest of everything that its data depends on and that can be seen from here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from oarlock.job.model import WAYS, Ingest
from oarlock.program import imports

_DIGITS = 12


def key_of(ingest: Ingest, folder: Path) -> str:
    """Digest the program with the modules beside it, its arguments and variables, and the sources.

    A source that is a path counts with the size and the time of the file.
    """
    digest = hashlib.sha256()
    declared = {
        **{way: getattr(ingest, way) for way in WAYS},
        "args": ingest.args,
        "env": ingest.env,
        "pip": ingest.pip,
        "sources": {name: (source.url, source.sha256) for name, source in sorted(ingest.sources.items())},
    }
    digest.update(json.dumps(declared, sort_keys=True).encode())
    for path in _files(ingest, folder):
        digest.update(f"\n{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    for source in ingest.sources.values():
        if "://" not in source.url:
            digest.update(_look(folder / Path(source.url).expanduser()).encode())
    return digest.hexdigest()[:_DIGITS]


def _files(ingest: Ingest, folder: Path) -> list[Path]:
    if ingest.command is not None:
        found = [
            folder / word for word in (*ingest.command, *ingest.args) if word and not word.startswith("-")
        ]
        return [path for path in found if path.is_relative_to(folder) and path.is_file()]
    return list(imports.scan(folder, ingest.program, ingest.module).files)


def _look(path: Path) -> str:
    """The size and time of a file, or of all files in a folder."""
    try:
        paths = sorted(path.rglob("*")) if path.is_dir() else [path]
        return "".join(f"\n{one} {one.stat().st_size} {one.stat().st_mtime_ns}" for one in paths)
    except OSError:
        return "\nnot there"  # the ingest says so, in its own words
