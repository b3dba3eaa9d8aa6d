"""What the zygote imports before it forks, and whether it can be forked after that.

The frameworks themselves are known to be safe as long as they start no device. A library on top of one may
start a thread or open a socket at import, which a fork loses or shares. An import cannot be undone, so the
zygote then starts again without that library, and each task imports it itself.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from oarlock.agent.zygote.orders import ORDERS, Prepare, Ready
from oarlock.run.quick_dataclass import dataclass
from oarlock.system import processes

# Imported last, and checked closely: by the first part of the name.
_LIBRARIES = frozenset(
    ("accelerate", "datasets", "flax", "lightning", "optax", "orbax", "pytorch_lightning", "transformers")
)

# What a program that compiles imports in its first steps; not earlier, as a program may compile nothing.
# torch._inductor.compile_fx is left out: it makes CUDA's driver start a thread, which a fork would lose.
LATER = ("torch._dynamo",)


@dataclass(frozen=True)
class Unsafe:
    """A library whose import makes this process unsafe to fork."""

    module: str
    why: str


@dataclass(frozen=True)
class Traces:
    """What an import can leave behind that a fork loses or shares."""

    threads: int  # Python threads
    tasks: int  # all threads, as the kernel counts them
    pools: int  # OpenBLAS libraries, each with threads of its own that it restarts in a fork
    sockets: int

    @classmethod
    def now(cls) -> Traces:
        """The traces in this process so far."""
        tasks = sum(1 for _ in Path("/proc/self/task").iterdir())
        return cls(threading.active_count(), tasks, _pools(), _sockets())

    def why_not(self, before: Traces) -> str | None:
        """Why a process with these traces must not be forked, given those from `before`."""
        renewed = (self.pools - before.pools) * ((os.cpu_count() or 1) - 1)
        if self.threads > before.threads or self.tasks > before.tasks + renewed:
            return "importing it starts a thread"
        return "importing it opens a socket" if self.sockets > before.sockets else None


def import_all(modules: Sequence[str], skipped: Sequence[str] = ()) -> Ready | Unsafe:
    """Import the modules. One that fails is left to the program, which shows the traceback."""
    began = time.monotonic()
    imported, skipped = [], list(skipped)
    for name in _sorted(_with_legacy_keras(modules)):
        if name == "oarlock":
            import_oarlock()
            continue
        is_library = name.partition(".")[0] in _LIBRARIES
        before = Traces.now()
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as error:
            skipped.append(f"{name}: {error}")
        unsafe = (why_not_forkable() or Traces.now().why_not(before)) if is_library else None
        if unsafe is not None:
            return Unsafe(name, unsafe)
    why = why_not_forkable()
    seconds = round(time.monotonic() - began, 3)
    return Ready(warm=why is None, why=why, modules=imported, skipped=skipped, seconds=seconds)


def import_oarlock() -> None:
    """Import what programs use of Oarlock, with everything it needs. The package itself imports nothing."""
    from oarlock.training import data, state  # noqa: F401


def start_again(sock: socket.socket, prepare: Prepare, unsafe: Unsafe, skipped: Sequence[str]) -> NoReturn:
    """Replace the zygote by a fresh interpreter, with the same pid, that leaves this library out."""
    modules = tuple(name for name in prepare.modules if name != unsafe.module)
    rest = replace(prepare, env={}, modules=modules, network="shared")  # it has the others already
    state = {
        "prepare": ORDERS.to_data(rest),
        "skipped": [*skipped, f"{unsafe.module}: {unsafe.why}"],
    }
    os.set_inheritable(sock.fileno(), True)
    start = processes.entry("oarlock.agent.zygote.zygote")
    words = [sys.executable, "-c", start, *sys.argv[1:3], json.dumps(state)]
    os.execv(sys.executable, words)


def _sorted(modules: Sequence[str]) -> list[str]:
    """Libraries last: NumPy's threads, which survive a fork, must not be attributed to them."""
    libraries = [name for name in modules if name.partition(".")[0] in _LIBRARIES]
    others = [name for name in modules if name not in libraries]
    numpy = ["numpy"] if libraries and "numpy" not in others else []
    return [*others, *numpy, *libraries]


def _with_legacy_keras(modules: Sequence[str]) -> list[str]:
    """With this variable, `tf.keras` is tf_keras, and importing Keras 3 would be useless."""
    if os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        return list(modules)
    return list(dict.fromkeys("tf_keras" if name == "keras" else name for name in modules))


def _pools() -> int:
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return len({line.split()[-1] for line in maps if "openblas" in line})


def _sockets() -> int:
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except OSError:
            pass  # the descriptor that listed them
    return count


def why_not_forkable() -> str | None:
    """Why tasks must be spawned: some imports start a device, which is broken in a forked child."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing the program's modules initialized CUDA"
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "_backends", None):
        return "importing the program's modules initialized a JAX backend"
    return None
