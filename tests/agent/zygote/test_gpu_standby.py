"""A process that stands by for a task on a GPU becomes the task's next; the driver is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.cuda_library import CudaLibrary

# A zygote with one task's orders in its line, and what it answers; the agent is this process.
ZYGOTE = """
import os, select, signal, socket, sys
from oarlock.agent.protocol.spec import Program
from oarlock.agent.zygote import gpu_standby, preimport, zygote
from oarlock.agent.zygote.orders import ORDERS, REPLIES, Import, Launch, OpenGpus, Ready, StandBy, Sweep
from oarlock.system import fd_frames, processes
from oarlock.system.polling import wait_for

processes.adopt_orphans()
gpu_standby._OPENING = 120.0  # a busy machine
agent, line = socket.socketpair()
it = zygote._Zygote(fd_frames.FrameSocket(line), Ready(warm=True), gpu_standby.Standbys())

def launch(**env):
    output, events = os.open("output", os.O_WRONLY | os.O_CREAT), os.open(os.devnull, os.O_WRONLY)
    program = Program("program", "program.py")
    it._obey(Launch("worker-0", os.getpid(), os.getcwd(), program, None, "worker-0", env), (output, events))
    [pid] = it.alive
    return pid

def stand_by(gpus, **env):
    it._obey(StandBy("worker-0", "program.py", gpus, env), ())

def open_gpus(early=False):
    it._obey(OpenGpus("worker-0", early), ())

def import_slowly():
    preimport.LATER = ("slow",)
    it._obey(Import(("slow",)), ())

def load(path):
    import ctypes
    path and ctypes.CDLL(path)

def calls():
    path = os.environ["OARLOCK_TEST_CUDA_CALLS"]
    return open(path).read().splitlines() if os.path.exists(path) else []

def children():
    return processes.descendants(os.getpid())

def ended(pid):
    code = processes.exit_code(os.waitpid(pid, 0)[1])
    return code, open("output").read().strip()
"""
PROGRAM = """
import os
from oarlock.system.gpus import cuda_driver
print(cuda_driver.contexts(), os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["RANK"])
"""
SLOW = """
import os
from oarlock.system.polling import wait_for
wait_for(lambda: os.path.exists("go"), "leave to go on", 60)
"""


@pytest.fixture
def zygote(tmp_path: Path, cuda_library: CudaLibrary) -> ZygoteOf:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "slow.py").write_text(SLOW)
    return ZygoteOf(tmp_path, cuda_library)


class ZygoteOf:
    def __init__(self, folder: Path, library: CudaLibrary) -> None:
        self.folder = folder
        self.library = library

    def does(self, code: str) -> None:
        words = [sys.executable, "-c", ZYGOTE + dedent(code)]
        env = {**os.environ, **self.library.env, "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_next_launch_of_the_task_begins_with_open_gpus(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((1,), CUDA_VISIBLE_DEVICES="4,5")
        [standby] = children()
        wait_for(lambda: calls() == ["started"], "the driver", 60)
        open_gpus()
        wait_for(lambda: calls() == ["started", "opened 1"], "the GPU", 60)
        assert launch(CUDA_VISIBLE_DEVICES="4,5", RANK="3") == standby
        found = ended(standby)
        assert found == (0, "(1,) 4,5 3"), found
        assert not children()
    """)


MULTIPLIED = ["opened 0", "multiplied 14 68: 1 0 1 1", "multiplied 0 68: 1 0 1 1", "freed"]


def test_one_that_opens_them_early_loads_what_products_need(zygote: ZygoteOf) -> None:
    zygote.does(f"""
        load({str(zygote.library.cublas)!r})
        stand_by((0,))
        [standby] = children()
        open_gpus(early=True)
        wait_for(lambda: calls() == ["started", "opened 0", *{MULTIPLIED}], "products", 60)
        assert launch(RANK="0") == standby
        assert ended(standby) == (0, "(0,) None 0")
    """)


def test_one_that_is_forked_later_has_time_for_that_too(zygote: ZygoteOf) -> None:
    zygote.does(f"""
        load({str(zygote.library.cublas)!r})
        import_slowly()
        stand_by((0,))
        open_gpus(early=True)
        open("go", "w").close()
        wait_for(lambda: select.select([it.wake], [], [], 0)[0], "the end of the import", 60)
        it._fork_standbys()
        wait_for(lambda: calls() == ["started", "opened 0", *{MULTIPLIED}], "products", 60)
    """)


def test_one_that_opens_them_at_a_death_does_not_take_the_time(zygote: ZygoteOf) -> None:
    zygote.does(f"""
        load({str(zygote.library.cublas)!r})
        stand_by((0,))
        open_gpus()
        assert ended(launch(RANK="0")) == (0, "(0,) None 0")
        assert calls() == ["started", "opened 0"], calls()
    """)


@pytest.mark.parametrize("variable", ["OARLOCK_TEST_FULL_GPU", ""])
def test_products_that_cannot_be_had_are_done_without(zygote: ZygoteOf, variable: str) -> None:
    zygote.does(f"""
        load({str(zygote.library.cublas)!r} if {variable!r} else None)
        os.environ[{variable!r} or "OTHER"] = "1"
        stand_by((0,))
        open_gpus(early=True)
        assert ended(launch(RANK="0")) == (0, "(0,) None 0")
        assert not any("multiplied" in call for call in calls()), calls()
    """)


def test_another_program_gets_a_process_of_its_own(zygote: ZygoteOf) -> None:
    (zygote.folder / "other.py").write_text(PROGRAM)
    zygote.does("""
        it._obey(StandBy("worker-0", "other.py", (0,), {}), ())
        [standby] = children()
        pid = launch(RANK="0")
        assert pid != standby
        assert ended(pid) == (0, "() None 0")
    """)


def test_it_begins_with_the_variables_that_the_zygote_has_then(zygote: ZygoteOf) -> None:
    """It may have been forked for an earlier run."""
    (zygote.folder / "program.py").write_text(
        "import os\nprint(sorted(set(os.environ) & {'OLD', 'NEW', 'RANK'}))"
    )
    zygote.does("""
        os.environ["OLD"] = "1"
        stand_by((0,))
        [standby] = children()
        del os.environ["OLD"]
        os.environ["NEW"] = "1"
        assert launch(RANK="0") == standby
        assert ended(standby) == (0, "['NEW', 'RANK']")
    """)


def test_a_launch_opens_them_if_nothing_was_seen_to_die(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        assert launch(RANK="0") == standby
        assert ended(standby) == (0, "(0,) None 0")
    """)


def test_none_is_forked_before_imports_are_done(zygote: ZygoteOf) -> None:
    zygote.does("""
        import_slowly()
        stand_by((0,))
        assert not children()
        open("go", "w").close()
        wait_for(lambda: select.select([it.wake], [], [], 0)[0], "the end of the import", 60)
        it._fork_standbys()
        [standby] = children()
        assert launch(RANK="0") == standby
        assert ended(standby) == (0, "(0,) None 0")
    """)


def test_a_launch_that_comes_before_imports_are_done_does_without(zygote: ZygoteOf) -> None:
    zygote.does("""
        import_slowly()
        stand_by((0,))
        open("go", "w").close()
        pid = launch(RANK="0")
        it._fork_standbys()
        assert children() == [pid]
        assert ended(pid) == (0, "() None 0")
    """)


def test_a_task_that_is_done_has_none(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        stand_by(())
        assert os.WTERMSIG(os.waitpid(standby, 0)[1]) == signal.SIGKILL
        assert not children()
    """)


def test_it_survives_a_sweep_and_a_stop_that_comes_early(zygote: ZygoteOf) -> None:
    (zygote.folder / "program.py").write_text("import time; print('runs'); time.sleep(1000)")
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        it._obey(Sweep(), ())
        os.kill(standby, signal.SIGTERM)  # it is blocked until the task has settled, and not lost
        assert launch() == standby
        assert ended(standby)[0] == 128 + signal.SIGTERM
    """)


def test_a_task_with_other_gpus_gets_a_process_of_its_own(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,), CUDA_VISIBLE_DEVICES="0")
        [standby] = children()
        pid = launch(CUDA_VISIBLE_DEVICES="1", RANK="0")
        assert pid != standby
        assert ended(pid) == (0, "() 1 0")
        assert os.WTERMSIG(os.waitpid(standby, 0)[1]) == signal.SIGKILL
    """)


def test_gpus_that_cannot_be_opened_are_left_to_the_program(zygote: ZygoteOf) -> None:
    zygote.library.refuse()
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        pid = launch(RANK="0")
        assert pid != standby
        assert ended(pid) == (0, "() None 0")
    """)


def test_a_launch_that_fails_in_it_is_no_success(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        output = os.open("/dev/null", os.O_WRONLY)
        program = Program("program", "program.py")
        it._obey(Launch("worker-0", os.getpid(), "/nowhere", program, None, "", {}), (output, os.dup(output)))
        assert it.alive == {standby}
        assert processes.exit_code(os.waitpid(standby, 0)[1]) == 70
    """)


def test_one_that_is_forked_later_opens_them_then(zygote: ZygoteOf) -> None:
    zygote.does("""
        import_slowly()
        stand_by((0,))
        open_gpus()
        stand_by((0,))
        assert not it.standbys._opening
        open_gpus()
        open("go", "w").close()
        wait_for(lambda: select.select([it.wake], [], [], 0)[0], "the end of the import", 60)
        it._fork_standbys()
        wait_for(lambda: calls() == ["started", "opened 0"], "the GPU", 60)
    """)


def test_one_that_replaces_another_leaves_them_closed(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,))
        open_gpus()
        wait_for(lambda: calls() == ["started", "opened 0"], "the GPU", 60)
        stand_by((0,))
        wait_for(lambda: calls()[2:] == ["started"], "the driver", 60)
        assert launch(RANK="0") in children()
        assert calls()[2:] == ["started", "opened 0"]  # for the launch, which waits for that
    """)


def test_one_that_is_killed_is_forgotten_with_its_pid(zygote: ZygoteOf) -> None:
    zygote.does("""
        stand_by((0,))
        [standby] = children()
        open_gpus()
        os.kill(standby, signal.SIGKILL)
        def is_reaped():
            it._reap()
            return not children()
        wait_for(is_reaped, "its end", 60)
        assert not it.standbys._waiting
        assert standby not in processes._spared
        pid = launch(RANK="0")
        assert ended(pid) == (0, "() None 0")
    """)


def test_a_zygote_that_must_not_be_forked_has_none(zygote: ZygoteOf) -> None:
    zygote.does("""
        it.later.why_not = "importing it starts a thread"
        stand_by((0,))
        assert not children()
    """)


def test_a_zygote_that_leaves_ends_it_first(zygote: ZygoteOf) -> None:
    zygote.does("""
        pid = os.fork()
        if pid == 0:
            stand_by((0,))
            it._leave()
        os.waitpid(pid, 0)
        assert not children()
    """)


def test_it_dies_with_the_zygote(zygote: ZygoteOf) -> None:
    zygote.does("""
        zygote_pid = os.fork()
        if zygote_pid == 0:
            stand_by((0,))
            print(children()[0], file=open("pid", "w"))
            os._exit(0)
        os.waitpid(zygote_pid, 0)
        standby = int(open("pid").read())
        wait_for(lambda: os.waitpid(-1, os.WNOHANG)[0] == standby, "its end", 60)
    """)
