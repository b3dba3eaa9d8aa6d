"""What the zygote imports, and when it must not fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any


def imported(folder: Path, *modules: str) -> dict[str, Any]:
    code = f"""
import dataclasses, json
from oarlock.agent.zygote import zygote
print(json.dumps(dataclasses.asdict(zygote._import({modules!r}))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True, cwd=folder
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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


def test_a_stop_that_comes_right_after_the_fork_is_not_lost() -> None:
    """Before it has settled a task ignores signals, as the zygote does."""
    code = """
        import os, signal, socket
        from oarlock.agent.protocol.spec import Program
        from oarlock.agent.zygote import runner, zygote
        from oarlock.agent.zygote.orders import Launch, Ready
        from oarlock.system import fd_frames

        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        settle = runner.settle
        def stopped_before(*words):
            os.kill(os.getpid(), signal.SIGTERM)
            settle(*words)
        runner.settle = stopped_before
        agent, line = socket.socketpair()
        program = Program("program", "program.py")
        launch = Launch("worker-0", os.getpid(), "/", program, None, "worker-0", {})
        forks = zygote._Zygote(fd_frames.Line(line), Ready(warm=True))
        forks._launch(launch, os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY))
        [pid] = forks.alive
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
