"""The part of Oarlock that runs in a pod, as one archive that needs nothing installed."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from oarlock.agent.protocol.pod_paths import AGENT

if TYPE_CHECKING:
    from importlib.abc import Traversable

# The parts of Oarlock that travel: whole folders, and the package's own `__init__`.
TRAVELS = ("run", "system", "checkpoints", "training", "agent")
# The boot program unpacks the modules first, so that every later process finds them compiled. The first
# process of a pod has no default signal handlers: without one of its own, a pod that is deleted before its
# agent's loop runs would last for its whole grace period. Its argument is a module of `agent/pod`.
BOOT = f"""import importlib, io, os, signal, sys, zipfile

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
place = "{AGENT}"
with zipfile.ZipFile(sys.argv[0]) as archive:
    modules = io.BytesIO(archive.read("modules.zip"))
with zipfile.ZipFile(modules) as archive:
    archive.extractall(place)
sys.path[0] = place
name = sys.argv[1] if sys.argv[1:] else "main"
sys.exit(importlib.import_module("oarlock.agent.pod." + name).main())
"""


def pack() -> bytes:
    """Pack the agent; `python agent.zip` starts it with nothing installed.

    The modules are stored in an inner archive, which is compressed as a whole: to 141 kB by bzip2, to 191 by
    deflate, and `kubectl apply` takes no more than 192. Python itself does not start what bzip2 compressed.
    """
    modules = _zip(_travelling())
    return _zip({"__main__.py": BOOT.encode(), "modules.zip": modules}, {"modules.zip": zipfile.ZIP_BZIP2})


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


def _zip(files: dict[str, bytes], how: Mapping[str, int] = MappingProxyType({})) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name)  # dated 1980, so that the same modules give the same bytes
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, files[name], how.get(name, zipfile.ZIP_STORED))
    return packed.getvalue()
