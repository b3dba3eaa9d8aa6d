"""The part of Oarlock that runs in a pod, as one archive that needs nothing installed."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from oarlock.agent.protocol.pod_paths import AGENT
from oarlock.program.bare_source import without_docstrings

if TYPE_CHECKING:
    from importlib.abc import Traversable

# The parts of Oarlock that travel: whole folders, and the package's own `__init__`.
TRAVELS = ("run", "system", "checkpoints", "models", "training", "agent")
# The same for the model server, which needs no agent.
SERVES = ("run", "system", "checkpoints", "models", "training", "serving")
_COMPILED = (".pyc", ".pyo")
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
    modules = _zip(_travelling(rooms))
    return _zip(
        {"__main__.py": boot(module).encode(), "modules.zip": modules}, {"modules.zip": zipfile.ZIP_BZIP2}
    )


def _travelling(rooms: Sequence[str]) -> dict[str, bytes]:
    package = resources.files("oarlock")
    texts = {"oarlock/__init__.py": package.joinpath("__init__.py").read_bytes()}
    for name in rooms:
        texts |= _modules(package.joinpath(name), f"oarlock/{name}")
    return texts


def _modules(folder: Traversable, path: str) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for found in folder.iterdir():
        if found.is_dir():
            texts |= _modules(found, f"{path}/{found.name}")
        elif found.name.endswith(".py"):
            texts[f"{path}/{found.name}"] = without_docstrings(found.read_bytes())
        elif not found.name.endswith(_COMPILED):  # a page's files travel too
            texts[f"{path}/{found.name}"] = found.read_bytes()
    return texts


def _zip(files: dict[str, bytes], how: Mapping[str, int] = MappingProxyType({})) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name)  # dated 1980, so that the same modules give the same bytes
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, files[name], how.get(name, zipfile.ZIP_STORED))
    return packed.getvalue()
