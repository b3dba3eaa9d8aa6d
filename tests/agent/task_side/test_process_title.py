"""Tasks have the name of their program in `ps` and `pgrep`; whoever forked them keeps its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.small_programs import write

SHOWN = """
from pathlib import Path

def shown():
    names = [Path(f"/proc/self/{name}").read_text().strip("\\0\\n") for name in ("cmdline", "comm")]
    return " | ".join(names).replace("\\0", " ")
"""
FORK = """
import os, sys
from oarlock.agent.protocol.spec import Program
from oarlock.agent.task_side.process_title import show_task

before = shown()
pid = os.fork()
if pid == 0:
    show_task("worker-3", Program(*eval(sys.argv[1])))
    print(shown(), flush=True)
    os._exit(sys.orig_argv[0] != sys.executable)
assert os.waitpid(pid, 0)[1] == 0
assert shown() == before
"""


@pytest.mark.parametrize(
    ("program", "command", "name"),
    [
        (
            ("program", "code/train.py", ["--lr", "0.1"]),
            "oarlock worker-3 code/train.py --lr 0.1",
            "train.py",
        ),
        (("module", "package.train", []), "oarlock worker-3 -m package.train", "package.train"),
        (
            ("program", "a_very_long_name.py", ["é\udc80"]),
            r"oarlock worker-3 a_very_long_name.py é\udc80",
            None,
        ),
    ],
)
def test_a_fork_is_called_by_its_program(program: Any, command: str, name: str | None) -> None:
    words = [sys.executable, "-c", SHOWN + FORK, ascii(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{command} | {name or 'a_very_long_name.py'[:15]}\n"


def test_a_title_has_the_room_of_the_arguments_and_no_more() -> None:
    """The environment is what follows them in memory."""
    code = FORK.replace("print(shown(), flush=True)", "print(shown(), environ() == whole, flush=True)")
    around = 'environ = Path("/proc/self/environ").read_bytes\nwhole = environ()\n'
    words = [sys.executable, "-c", SHOWN + around + code, ascii(("program", "train.py", ["x" * 10000]))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("x | train.py True\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide /proc")
def test_where_there_is_no_proc_the_name_stays() -> None:
    code = """
        from oarlock.agent.protocol.spec import Program
        from oarlock.agent.task_side.process_title import show_task
        show_task("worker-0", Program("program", "train.py"))
    """
    hidden = 'mount -t tmpfs none /proc && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", hidden, "sh", sys.executable, "-c", dedent(code)]
    assert subprocess.run(words, timeout=300, check=False).returncode == 0


def test_the_tasks_of_a_run_are_found_by_name(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", SHOWN + "print(shown())")
    for option in ("--warm=1s", "--cold"):
        done = oarlock("run", "-n", "2", option, "train.py", "--lr", "0.1")
        for task in ("worker-0", "worker-1"):
            assert f"{task} | oarlock {task} train.py --lr 0.1 | train.py" in done.stdout, done.stderr
