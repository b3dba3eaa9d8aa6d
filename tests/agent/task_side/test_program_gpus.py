"""Which GPUs a program may find open when it starts again; the driver is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.support.cuda_library import CudaLibrary

STANDS_IN = "import types; torch = sys.modules['torch'] = types.SimpleNamespace(); torch.cuda = torch; "
STANDS_IN += "torch.is_initialized = {}"
OPENS = "cuda_driver.open_contexts([1])"
PROGRAMS = [
    ("it opens one", OPENS, "(1,)"),
    ("it opens none", "", "()"),
    ("it chooses others itself", f"os.environ['CUDA_VISIBLE_DEVICES'] = '1'; {OPENS}", "()"),
    ("torch sets the default itself", f"os.environ['CUDA_MODULE_LOADING'] = 'LAZY'; {OPENS}", "(1,)"),
    ("it sets another", f"os.environ['CUDA_MODULE_LOADING'] = 'EAGER'; {OPENS}", "()"),
    ("it forks before", f"os.fork() or os._exit(0); {OPENS}", "()"),
    ("it forks afterwards", f"{OPENS}; os.fork() or os._exit(0)", "(1,)"),
    ("it starts programs", f"import subprocess; subprocess.run(['true']); {OPENS}", "(1,)"),
    ("torch, unused, opens nothing", f"{STANDS_IN.format('lambda: False')}; {OPENS}", "(1,)"),
    ("it uses TensorFlow", f"sys.modules['tensorflow'] = sys; {OPENS}", "()"),
]


def named_by(program: str, library: CudaLibrary, before: str = "") -> str:
    """The GPUs that are said to be opened. `before`: what the process did earlier."""
    code = f"""
        import argparse, os, sys
        from oarlock.agent.task_side import program_gpus
        from oarlock.system.gpus import cuda_driver

        {before}
        opened = program_gpus.watch()
        {program}
        print(opened())
    """
    env = {**os.environ, **library.env}
    words = [sys.executable, "-c", dedent(code)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("program", "named"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_program_that_could_notice_gets_none(program: str, named: str, cuda_library: CudaLibrary) -> None:
    assert named_by(program, cuda_library) == named


FOUND_OPEN = [
    ("it does not use it", "", "()"),
    ("it opens another itself", "cuda_driver.open_contexts([1])", "(1,)"),
    ("torch does not use it", STANDS_IN.format("lambda: False"), "()"),
    ("torch uses it", STANDS_IN.format("lambda: True"), "(0,)"),
    ("torch uses it, after a fork", f"os.fork() or os._exit(0); {STANDS_IN.format('lambda: True')}", "()"),
    (
        "JAX uses the CPU",
        "sys.modules['jax._src.xla_bridge'] = argparse.Namespace(_backends={'cpu': 1})",
        "()",
    ),
    (
        "JAX uses it",
        "sys.modules['jax._src.xla_bridge'] = argparse.Namespace(_backends={'cpu': 1, 'cuda': 1})",
        "(0,)",
    ),
]


@pytest.mark.parametrize(
    ("program", "named"), [row[1:] for row in FOUND_OPEN], ids=[row[0] for row in FOUND_OPEN]
)
def test_one_that_was_open_before_counts_if_the_program_uses_it(
    program: str, named: str, cuda_library: CudaLibrary
) -> None:
    assert named_by(program, cuda_library, before="cuda_driver.open_contexts([0])") == named


def test_what_the_driver_refuses_is_not_open(cuda_library: CudaLibrary) -> None:
    cuda_library.refuse()
    code = """
        from oarlock.system.gpus import cuda_driver

        print(cuda_driver.open_contexts([0]), cuda_driver.contexts())
    """
    env = {**os.environ, **cuda_library.env}
    words = [sys.executable, "-c", dedent(code)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "False ()\n", done.stderr


def test_without_a_driver_there_is_none() -> None:
    code = "from oarlock.system.gpus import cuda_driver; print(cuda_driver.contexts())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "()\n", done.stderr
