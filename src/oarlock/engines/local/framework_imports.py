"""Check whether a framework works here: import it in a process of its own, which may be slow or crash."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys

from oarlock.engines.before_start import Finding, finding
from oarlock.system import processes
from oarlock.units import plural

NAMES = ("tensorflow", "keras", "torch", "jax")
_PATIENCE = 120.0  # seconds; TensorFlow takes 20 from a cold network disk
_INSTALL = {"keras": "pip install keras"}
# How many GPUs each sees. Asking JAX starts its backend, which would take most of the GPU's memory.
_GPUS = {
    "tensorflow": "len(module.config.list_physical_devices('GPU'))",
    "torch": "module.cuda.device_count()",
    "jax": "sum(device.platform == 'gpu' for device in module.devices())",
}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_PROBE = """
import importlib, json, sys, time
began = time.perf_counter()
module = importlib.import_module({name!r})
told = {{"version": getattr(module, "__version__", None), "seconds": round(time.perf_counter() - began, 2)}}
try:
    told["gpus"] = {gpus}
except Exception:
    told["gpus"] = None
print("\\n" + json.dumps(told))
"""


def probe(name: str, patience: float = _PATIENCE) -> Finding:
    """Return the result of importing a framework. `state` is ok, missing or broken."""
    if importlib.util.find_spec(name) is None:
        fix = _INSTALL.get(name, f"pip install 'oarlock[{name}]'")
        return _finding(name, "missing", "not installed", fix)
    code = _PROBE.format(name=name, gpus=_GPUS.get(name, "None"))
    try:
        done = subprocess.run(
            [sys.executable, "-c", processes.BARE_PATH + code],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=patience,
            env={**os.environ, **_QUIET},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _finding(name, "broken", f"importing it takes longer than {patience:g} s")
    if done.returncode != 0:
        return _finding(name, "broken", _why(done.returncode, done.stderr))
    reply = json.loads(done.stdout.strip().splitlines()[-1])
    gpus = "" if reply["gpus"] is None else f", {plural(reply['gpus'], 'GPU')}"
    detail = f"{reply['version']}, imported in {reply['seconds']:.1f}s{gpus}"
    return {**_finding(name, "ok", detail), **reply}


def _finding(name: str, state: str, detail: str, fix: str | None = None) -> Finding:
    known: Finding = {"version": None, "seconds": None, "gpus": None}
    return {**finding(name, state, detail, fix), **known}


def _why(code: int, stderr: str) -> str:
    if code == -signal.SIGILL:
        return "killed by SIGILL: it was built for a newer processor"
    if code < 0:
        return f"killed by {signal.Signals(-code).name} while it was imported"
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"importing it ended with exit code {code}"
