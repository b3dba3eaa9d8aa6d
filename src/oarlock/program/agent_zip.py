"""The part of Oarlock that runs in a pod, as one archive that needs nothing installed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from oarlock.agent.protocol.pod_paths import AGENT
from oarlock.program.bare_source import without_docstrings
from oarlock.system.atomic_file import write_whole

# The parts of Oarlock that travel: whole folders, and the package's own `__init__`.
TRAVELS = ("run", "system", "checkpoints", "models", "training", "agent")
# The same for the model server, which needs no agent.
SERVES = ("run", "system", "checkpoints", "models", "training", "serving")
_PACKAGE = Path(__file__).parents[1]
# Packing takes a third of a second, so the archive is kept where Python keeps compiled files.
_KEPT = Path(__file__).parent / "__pycache__"
# The boot program unpacks the modules first, so that every later process finds them compiled. The first
# process of a pod has no default signal handlers: without one of its own, a pod that is deleted before its
# main loop runs would last for its whole grace period.
_BOOT = f"""import io, os, signal, sys, zipfile

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
place = "{AGENT}"
with zipfile.ZipFile(sys.argv[0]) as archive:
    modules = io.BytesIO(archive.read("modules.zip"))
with zipfile.ZipFile(modules) as archive:
    archive.extractall(place)
sys.path[0] = place
from {{module}} import main

sys.exit(main())
"""


def pack(module: str = "oarlock.agent.pod.main") -> bytes:
    """Pack the agent; `python agent.zip` starts it, or another of its modules, with nothing installed."""
    return _packed(TRAVELS, module)


def pack_server() -> bytes:
    """Pack the model server; `python server.zip` prepares the pod and becomes it."""
    return _packed(SERVES, "oarlock.serving.pod_start")


def boot(module: str) -> str:
    """Return the program that unpacks the modules and starts the `main` of one of them."""
    return _BOOT.format(module=module)


def _packed(rooms: Sequence[str], module: str) -> bytes:
    """Pack those folders, and the program that starts a module's `main`.

    The modules are stored in an inner archive, which is compressed as a whole: with the spec, `kubectl apply`
    takes no more than 184 kB. The agent has 142 by bzip2, 185 with its docstrings, and more by LZMA and
    deflate. Python itself does not start what bzip2 compressed.
    """
    files = dict(_travelling(rooms))
    kept = _KEPT / f"{module}-{_version(files, module)}.zip"
    with suppress(OSError):
        return kept.read_bytes()
    modules = _zip({name: _content(path) for name, path in files.items()})
    packed = _zip(
        {"__main__.py": boot(module).encode(), "modules.zip": modules}, {"modules.zip": zipfile.ZIP_BZIP2}
    )
    if not sys.dont_write_bytecode:
        with suppress(OSError):  # a package that another user installed
            for older in _KEPT.glob(f"{module}-*.zip"):
                older.unlink()
            write_whole(kept, packed, writer=str(os.getpid()))
    return packed


def _travelling(rooms: Sequence[str]) -> Iterator[tuple[str, Path]]:
    yield "oarlock/__init__.py", _PACKAGE / "__init__.py"
    for room in rooms:
        for folder, folders, names in os.walk(_PACKAGE / room):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = Path(folder, name)
                yield f"oarlock/{path.relative_to(_PACKAGE).as_posix()}", path


def _version(files: Mapping[str, Path], module: str) -> str:
    """Identify the files as Python does for compiled ones: the same size and time mean the same file."""
    stats = {name: path.stat() for name, path in files.items()}
    stamps = sorted((name, found.st_size, found.st_mtime_ns) for name, found in stats.items())
    return hashlib.sha256(repr((stamps, boot(module))).encode()).hexdigest()[:16]


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return without_docstrings(content) if path.suffix == ".py" else content  # a page's files travel too


def _zip(files: dict[str, bytes], how: Mapping[str, int] = MappingProxyType({})) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name)  # dated 1980, so that the same modules give the same bytes
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, files[name], how.get(name, zipfile.ZIP_STORED))
    return packed.getvalue()
