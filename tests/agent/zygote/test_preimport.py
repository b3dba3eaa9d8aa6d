"""What the zygote imports, and when it must not fork."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.agent.zygote.handle import ZygoteProcess
from oarlock.agent.zygote.orders import Ready
from tests.support.gangs import Gang
from tests.support.soaking import only_in_soak

THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
SOCKET = "import socket; line = socket.socket()"
NATIVE = """
import ctypes, os
libc = ctypes.CDLL(None)
thread, start = ctypes.c_ulong(), ctypes.cast(libc.pause, ctypes.c_void_p)
assert libc.pthread_create(ctypes.byref(thread), None, start, None) == 0
"""


def imported(folder: Path, *modules: str, **env: str) -> dict[str, Any]:
    code = f"""
import dataclasses, json
from oarlock.agent.zygote import preimport
print(json.dumps(dataclasses.asdict(preimport.import_all({modules!r}))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
        cwd=folder,
        env={**os.environ, **env},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@only_in_soak  # program/test_frameworks.py forks each of them
def test_a_framework_that_was_only_imported_can_be_forked(tmp_path: Path) -> None:
    ready = imported(tmp_path, "jax", "jax.numpy", "torch", "torch._dynamo")
    assert (ready["warm"], ready["why"], ready["skipped"]) == (True, None, [])


def test_a_started_jax_backend_is_found_and_not_forked(tmp_path: Path) -> None:
    (tmp_path / "starts_jax.py").write_text("import jax; jax.devices()")
    ready = imported(tmp_path, "starts_jax")
    assert (ready["warm"], ready["why"]) == (
        False,
        "importing the program's modules initialized a JAX backend",
    )


def test_a_module_that_fails_is_left_to_the_program(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')")
    ready = imported(tmp_path, "broken", "json", "no_such_module")
    assert ready["modules"] == ["json"]
    assert ready["skipped"] == ["broken: no licence", "no_such_module: No module named 'no_such_module'"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (THREAD, "importing it starts a thread"),
        (NATIVE, "importing it starts a thread"),
        (SOCKET, "importing it opens a socket"),
    ],
)
def test_a_library_that_leaves_something_behind_is_not_forked(tmp_path: Path, code: str, why: str) -> None:
    (tmp_path / "flax.py").write_text(code)
    assert imported(tmp_path, "flax", "json") == {"module": "flax", "why": why}


def test_keras_3_is_left_out_where_the_environment_chooses_tf_keras(tmp_path: Path) -> None:
    for name in ("keras", "tf_keras"):
        (tmp_path / f"{name}.py").touch()
    assert imported(tmp_path, "json", "keras", TF_USE_LEGACY_KERAS="0")["modules"] == ["json", "keras"]
    ready = imported(tmp_path, "json", "keras", "tf_keras", TF_USE_LEGACY_KERAS="1")
    assert ready["modules"] == ["json", "tf_keras"]


def test_the_zygote_begins_again_without_such_a_library(tmp_path: Path) -> None:
    (tmp_path / "flax.py").write_text(THREAD)
    (tmp_path / "optax.py").write_text(SOCKET)
    (tmp_path / "accelerate.py").touch()
    spec = Spec(
        run="r",
        folder=str(tmp_path),
        cwd=str(tmp_path),
        program=Program("program", "p.py"),
        sizes={"worker": 1},
        folders={},
        env={"PYTHONPATH": str(tmp_path), "TOKEN": "hidden"},
        modules=["flax", "json", "optax", "accelerate"],
    )
    zygote = ZygoteProcess(spec)
    zygote.start({})
    pid = zygote.pid
    try:
        [ready] = first_replies(zygote)
        assert isinstance(ready, Ready)
        assert ready.warm
        arguments = Path(f"/proc/{pid}/cmdline").read_text()
        assert "flax" in arguments
        assert "hidden" not in arguments, "every user of the machine can read it there"
        assert ready.modules == ["json", "numpy", "accelerate"]
        assert ready.skipped == [
            "flax: importing it starts a thread",
            "optax: importing it opens a socket",
        ]
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) <= (os.cpu_count() or 1)  # NumPy's alone
    finally:
        zygote.close()


def first_replies(zygote: ZygoteProcess, seconds: float = 300.0) -> list[Any]:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        select.select([zygote.sock], [], [], left)
        replies, is_there = zygote.receive()
        assert is_there, "the zygote has ended"
        if replies:
            return replies
    raise AssertionError(f"no reply within {seconds:g} s")


@pytest.mark.parametrize(
    ("uses", "warm", "is_imported"), [("oarlock", True, True), ("json", True, False), ("json", "1s", True)]
)
def test_what_programs_use_of_oarlock_is_imported_where_it_is_used_or_kept(
    start: Callable[..., Gang], uses: str, warm: bool | str, is_imported: bool
) -> None:
    program = (
        "import sys; print('it has', 'oarlock.training.state' in sys.modules); import numpy, torch, " + uses
    )
    gang = start(program, roles={"worker": 1}, warm=warm)
    assert gang.end().state == "succeeded", gang.told()
    assert f"worker-0| it has {is_imported}" in gang.lines
    (ready,) = (event for event in gang.events if event["kind"] == "ready")
    assert ready["modules"] == ["torch", "numpy"]
