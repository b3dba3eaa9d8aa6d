"""Prepare a pod, then become the model server in it, in the same first process.

    /oarlock/code     what the client sent: server.zip, settings.json, pod.json, model.tar.gz in parts
    /oarlock/work     this pod's own: Oarlock, packages, HOME, a model that was sent along or downloaded
    /oarlock/secret   the bearer token and the certificate, if clients need them

Kubernetes shows the last output of a container that ends, so every problem here is one sentence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

from oarlock.system.pods import pip_install, places, sent_archive

CODE = Path(places.CODE)
WORK = Path(places.WORK)
MODEL_PARTS = "model.tar.gz"
SETTINGS = "settings.json"
_MODULE = "oarlock.serving"


def main() -> int:
    """Return the exit code of a pod that cannot serve; otherwise this does not return."""
    try:
        asked = json.loads((CODE / "pod.json").read_text())
        _make_home()
        if any(CODE.glob(f"{MODEL_PARTS}.*")):
            _unpack_model()
    except OSError as problem:
        return _fail(f"{problem.filename or 'a file'} cannot be used: {problem.strerror}")
    except (ValueError, tarfile.TarError) as problem:
        return _fail(f"what the client sent is damaged: {problem}")
    failed = pip_install.install(_lacking(asked), WORK, str(WORK), asked.get("env", {}))
    if failed:
        return _fail(failed)
    _become_server()
    return 1  # never reached: the process is another program by now


def _lacking(asked: dict[str, Any]) -> list[str]:
    """The requested packages whose module the image does not have.

    What the user requests always goes to pip, which knows whether its version fits.
    """
    known: dict[str, str] = asked.get("modules", {})  # package: module
    return [one for one in asked.get("pip", []) if one not in known or not _is_there(known[one])]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _unpack_model() -> None:
    """Reuse the folder of the previous container if this one restarted in place."""
    folder = Path(places.MODEL)
    if not folder.exists():
        draft = folder.with_name(f".{folder.name}")
        draft.mkdir(exist_ok=True)
        sent_archive.unpack(CODE, MODEL_PARTS, draft)
        draft.rename(folder)


def _make_home() -> None:
    """Set HOME and USER: a user unknown to the image has neither, and some libraries need both."""
    home = WORK / "home"
    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(HOME=str(home), USER="oarlock", LOGNAME="oarlock")


def _become_server() -> None:
    """The modules stay where the archive was unpacked. They come first, so that no program in this folder
    can shadow one of them."""
    unpacked = sys.path[0]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([unpacked, *([before] if before else [])])
    os.chdir(WORK)
    settings = WORK / SETTINGS  # the server writes beside it, and what the client sent is read-only
    settings.write_bytes((CODE / SETTINGS).read_bytes())
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", _MODULE, str(settings)])


def _fail(why: str) -> int:
    print(f"oarlock: {why}", file=sys.stderr, flush=True)
    return 1
