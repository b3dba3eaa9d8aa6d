"""Oarlock: one job file, distributed training on a laptop or on any Kubernetes cluster.

Everything public is here and loads on first use: importing this package loads
no framework, no client library and no command line.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock.api import Job, Run
    from oarlock.errors import JobError, OarlockError, RunFailed, UnknownRun
    from oarlock.training import data, keras
    from oarlock.training.exporting.publishing import export
    from oarlock.training.state import State
    from oarlock.training.task.context import Context, current

__version__ = "0.1.0"

__all__ = [
    "Context",
    "Job",
    "JobError",
    "OarlockError",
    "Run",
    "RunFailed",
    "State",
    "UnknownRun",
    "__version__",
    "current",
    "data",
    "export",
    "keras",
]

_HOME = {
    "Context": "oarlock.training.task.context",
    "Job": "oarlock.api",
    "JobError": "oarlock.errors",
    "OarlockError": "oarlock.errors",
    "Run": "oarlock.api",
    "RunFailed": "oarlock.errors",
    "State": "oarlock.training.state",
    "UnknownRun": "oarlock.errors",
    "current": "oarlock.training.task.context",
    "data": "oarlock.training.data",
    "export": "oarlock.training.exporting.publishing",
    "keras": "oarlock.training.keras",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oarlock' has no attribute {name!r}")
    if _HOME[name].startswith("oarlock.training."):
        # A training program uses us. `model.fit` under MultiWorkerMirroredStrategy is wrong in Keras 3
        # (keras#20585): correct it whether Keras is imported before or after this, launcher or not.
        importlib.import_module("oarlock.training.keras.correction").install()
    module = importlib.import_module(_HOME[name])
    value = module if _HOME[name].endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
