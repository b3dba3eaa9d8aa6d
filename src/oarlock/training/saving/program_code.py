"""Which program made a checkpoint, so that a later run can say that its code differs."""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path


def checksums() -> dict[str, str]:
    """The checksum of every loaded file of the program."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return {}
    folder = Path(main).absolute().parent
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or "site-packages" in path:
            continue
        if path.startswith(os.sep) and not path.startswith(f"{str(folder).rstrip(os.sep)}{os.sep}"):
            continue  # one of a thousand others
        try:
            name = str(Path(path).absolute().relative_to(folder))
            found[name] = f"{zlib.crc32(Path(path).read_bytes()):08x}"
        except (ValueError, OSError):
            continue
    return found
