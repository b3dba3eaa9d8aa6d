"""One replica: a process forked by the supervisor that loads the model and answers requests.

Frameworks are already imported but used only from here on: what they start does not survive a fork.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from dataclasses import dataclass
from typing import Any

from oarlock.models.model_manifest import BadManifest
from oarlock.models.model_versions import Version
from oarlock.serving.counters import Blocks
from oarlock.serving.runtimes.runtime import ModelError
from oarlock.serving.settings import Settings
from oarlock.system import processes

_LOAD_FAILED = 3  # exit code; the reason is on the line
# Objects between two collections, not 700: an image as JSON is that many lists, none of them in a cycle.
_GARBAGE = 100_000


@dataclass(frozen=True)
class Place:
    """What a replica inherits."""

    settings: Settings
    versions: tuple[Version, ...]
    listener: socket.socket
    blocks: Blocks
    block: int
    line: socket.socket  # to the supervisor


def run(place: Place) -> int:
    """Load, answer requests until the supervisor stops it, and return the exit code."""
    processes.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    from oarlock.serving.server.loaded_models import LoadedModels

    models = LoadedModels(place.settings, place.blocks.counters(place.block))
    try:
        models.load(place.versions, lambda text: _tell(place.line, {"note": text}))
    except (ModelError, BadManifest, OSError, ImportError, MemoryError) as problem:
        _tell(place.line, {"failed": str(problem) or type(problem).__name__})
        return _LOAD_FAILED
    except Exception as problem:  # from the model's own code
        _tell(place.line, {"failed": f"{type(problem).__name__}: {problem}"})
        raise
    _serve(place, models)
    return 0


def _serve(place: Place, models: Any) -> None:
    from oarlock.serving.http.app import application
    from oarlock.serving.server.draining_server import DrainingServer

    def on_ready() -> None:
        models.is_ready = True
        _tell(place.line, {"ready": [_shape(one) for one in models.all()]})

    def on_drain() -> None:
        models.is_ready = False

    app = application(models)
    server = DrainingServer(app, place.settings, on_ready, on_drain)
    gc.collect()
    gc.freeze()  # a collection over a framework's heap stops every request for 0.2 s
    gc.set_threshold(_GARBAGE, 10, 10)
    server.run(sockets=[place.listener])
    app.close()
    models.close()


def _shape(served: Any) -> dict[str, Any]:
    return {"number": served.number, "form": served.form, "manifest": json.loads(served.manifest.to_json())}


def _tell(line: socket.socket, message: dict[str, Any]) -> None:
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        os._exit(1)  # the supervisor is gone
