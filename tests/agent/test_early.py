"""What starts before it is needed: an agent before its client knows the run, the zygote before the agent has
imported most of its own modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.records import runs
from oarlock.system import processes
from oarlock.system.processors import usable_cores
from tests.support.commands import SCRIPT, Command
from tests.support.gangs import STEPS, Gang, until_gone
from tests.support.small_programs import ENDLESS, has_said, write
from tests.support.waiting import eventually

# The command line, which tells what it had imported when it started the agent.
WITNESS = """
import sys
from oarlock.__main__ import main

def note(event, told):
    if event == "subprocess.Popen" and "oarlock.agent" in str(told[1]):
        print(*sys.modules, file=sys.stderr, flush=True)

sys.addaudithook(note)
main()
"""
# A client that reads the job once it is told to.
SLOW_CLIENT = """
import sys
from oarlock.engines import agent_process

agent_process.expect()
sys.stdin.readline()
from oarlock.engines.local import local_engine
from oarlock.job import job_file
local_engine.start(job_file.load("train.py"), "slow")
"""
# A process that adopts whatever a command leaves behind, and tells what that is.
PARENT = """
import os, subprocess, sys
from oarlock.system import processes

processes.adopt_orphans()
done = subprocess.run(sys.argv[1:])
print("left:", *processes.descendants(os.getpid()))
sys.exit(done.returncode)
"""
# A leading agent, which tells what it had imported when it started the zygote.
AT_ITS_START = """
import os, sys
from oarlock.agent import __main__ as agent
from oarlock.agent.zygote.handle import ZygoteProcess

def start(zygote, env):
    print(*sys.modules, flush=True)
    os._exit(0)

ZygoteProcess.start = start
agent.main()
"""


def test_it_starts_before_the_rest_of_the_agent_is_imported(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text(_spec(tmp_path).to_json())
    done = subprocess.run(
        [sys.executable, "-c", AT_ITS_START, str(tmp_path)], capture_output=True, text=True, check=False
    )
    imported = done.stdout.split()
    assert "oarlock.agent.zygote.handle" in imported, done.stderr
    others = ("oarlock.agent.leader", "oarlock.agent.follower", "oarlock.agent.lead", "oarlock.agent.record")
    assert not {*others} & {*imported}


def test_a_run_has_one(start: Callable[..., Gang]) -> None:
    gang = start(STEPS + "train(10**6)").until_step(3)
    assert gang.state.agent is not None
    assert len(_children(gang.state.agent)) == 1


def test_a_run_that_fails_before_any_task_leaves_none(home: Path, tmp_path: Path) -> None:
    gang = Gang(tmp_path / "job", STEPS + "train(3)", storage={"weights": str(tmp_path / "nowhere")})
    seen: set[int] = set()

    def is_over(gang: Gang) -> bool:
        if gang.state.agent is not None:
            seen.update([gang.state.agent, *processes.descendants(gang.state.agent)])
        return gang.state.is_final

    state = gang.until(is_over, "end").end()
    assert (state.state, state.code) == ("failed", 1), gang.told()
    assert "nowhere" in str(state.reason)
    until_gone([*seen])


def test_an_agent_starts_before_its_client_can_read_a_job(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('trained')")
    client = [sys.executable, "-c", WITNESS, "run", "train.py"]
    done = subprocess.run(client, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "trained" in done.stdout) == (0, True), done.stderr
    imported = done.stderr.split()
    assert imported.count("oarlock.engines.agent_process") == 1, "one process"
    assert not {"oarlock.job.job_file", "oarlock.engines.engine"} & {*imported}


@pytest.mark.parametrize("words", [("missing.py",), ("--wrong",), ("train.py", "-d", "-f")])
def test_a_client_that_starts_no_run_leaves_none(home: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", PARENT, str(SCRIPT), "run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (2, "left:\n"), done.stderr


def test_it_ends_with_a_client_that_is_killed(home: Path, tmp_path: Path) -> None:
    with slow_client(tmp_path) as (client, early):
        client.kill()
    until_gone(early)


def test_if_it_is_killed_the_run_gets_another(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('trained')")
    with slow_client(tmp_path) as (client, early):
        os.kill(early[0], signal.SIGKILL)
        until_gone(early)
        client.communicate(b"\n", timeout=300)
    run = runs.find("slow")
    eventually(lambda: not run.is_held(), "end of the run")
    assert run.state().state == "succeeded"
    assert run.state().agent not in early


def test_its_run_is_like_any_other(oarlock: Command, tmp_path: Path) -> None:
    """Its processes tell whose they are, and what they print goes into the run's log."""
    write(tmp_path / "train.py", ENDLESS)
    oarlock("run", "-d", "train.py")
    run = runs.find(None)
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    agent = run.state().agent
    assert agent is not None
    assert Path(f"/proc/{agent}/cmdline").read_bytes().strip(b"\0").split(b"\0")[1].decode() == str(run.path)
    for pid in (agent, *_children(agent)):
        assert [Path(f"/proc/{pid}/fd/{fd}").readlink() for fd in (1, 2)] == [run.agent_log] * 2


def test_its_tasks_and_commands_beside_them_have_what_was_decided_later(
    oarlock: Command, tmp_path: Path
) -> None:
    """How many tasks share the cores is not known when the zygote starts."""
    names = ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "JAX_COMPILATION_CACHE_DIR")
    show = f"import os; print('has', *map(os.environ.get, {names}), flush=True)"
    write(tmp_path / "train.py", f"{show}\n{ENDLESS}")
    oarlock("run", "-d", "train.py")
    run = runs.find(None)
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    expected = f"has {usable_cores()} lo {runs.home()}/cache/jax"
    assert has_said(run, expected)
    assert oarlock("exec", "--", "python3", "-c", show).stdout.strip() == expected
    assert oarlock("scale", "2").returncode == 0  # the zygote stays
    eventually(lambda: run.state().generation == 2, "the second generation")
    eventually(lambda: [task.state for task in run.state().tasks.values()] == ["running"] * 2, "both tasks")
    assert oarlock("exec", "--", "python3", "-c", show).stdout.strip() == expected


def test_without_a_zygote_it_waits_for_its_run(tmp_path: Path) -> None:
    """The system may refuse another process, for now."""
    code = """
        import os, socket, sys
        from oarlock.agent import __main__ as agent
        from oarlock.agent import early
        from oarlock.system import fd_frames

        def refuse():
            raise BlockingIOError(11, "no more processes")

        early.Spare = refuse
        agent.lead = lambda spec, has_input, spare: print(spec.run, has_input, spare)
        client, line = socket.socketpair()
        fd_frames.send(client, {"folder": sys.argv[1]}, (1, 1))
        sys.argv[1] = str(line.detach())
        early.main()
    """
    (tmp_path / "agent.json").write_text(_spec(tmp_path).to_json())
    words = [sys.executable, "-c", dedent(code), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "early False None\n", done.stderr


def test_what_only_a_new_interpreter_reads_is_read(oarlock: Command, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import sys\nprint('optimized:', sys.flags.optimize)")
    done = oarlock("run", "--env", "PYTHONOPTIMIZE=2", "train.py")
    assert "optimized: 2" in done.stdout, done.stderr


@contextmanager
def slow_client(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A client, and the processes that it has started: an agent and its zygote."""
    words = [sys.executable, "-c", SLOW_CLIENT]
    with subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE) as client:
        early: list[int] = []

        def are_there() -> bool:
            early[:] = processes.descendants(client.pid)
            return len(early) == 2

        eventually(are_there, "the agent and its zygote")
        yield client, early


def _spec(folder: Path) -> Spec:
    program = Program("program", "program.py")
    return Spec("early", str(folder), str(folder), program, sizes={"worker": 1}, folders={})


def _children(agent: int) -> list[int]:
    """Those that have ended, too: the agent waits for the zygote that it knows."""
    stats = {pid: Path(f"/proc/{pid}/stat").read_text() for pid in processes.descendants(agent)}
    return [pid for pid, stat in stats.items() if stat.rsplit(")", 1)[1].split()[1] == str(agent)]
