"""What a program reads: a pipe, a terminal, or nothing, and then one sentence that says how to get some."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oarlock.records import runs
from tests.support.commands import SCRIPT, Command
from tests.support.gangs import is_running
from tests.support.small_programs import write
from tests.support.terminals import OpenTerminal, Terminal
from tests.support.waiting import eventually

READS = """
import os, pathlib, sys
first = input("first? ")
pathlib.Path("first").write_text(first)
rest = sys.stdin.read()
pathlib.Path("rest-" + os.environ["OARLOCK_RANK"]).write_text(first + "|" + rest)
"""
DEBUGS = """
import pathlib
answer = 0
breakpoint()
pathlib.Path("after").write_text(str(answer))
"""
WAITS = """
import pathlib, time
pathlib.Path("before").touch()
deadline = time.monotonic() + 100
while not pathlib.Path("go").exists() and time.monotonic() < deadline:
    time.sleep(0.02)
"""
HOW = (
    "has no input in this task: `oarlock run` connects its own input to the only task (-n 1) or to rank 0 "
    "(--stdin), on this machine and without --detach"
)


@pytest.mark.parametrize("options", [[], ["--cold"]])
def test_the_only_task_reads_the_pipe(oarlock: Command, tmp_path: Path, options: list[str]) -> None:
    write(tmp_path / "reads.py", READS)
    done = oarlock("run", "-n", "1", *options, "reads.py", input="a\nb\nc\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rest-0").read_text() == "a|b\nc\n"


def test_of_several_tasks_rank_0_reads_where_that_is_asked_for(oarlock: Command, tmp_path: Path) -> None:
    write(
        tmp_path / "reads.py",
        """
        import os, pathlib, sys
        pathlib.Path("rest-" + os.environ["OARLOCK_RANK"]).write_text(sys.stdin.read())
        """,
    )
    done = oarlock("run", "-n", "2", "--stdin", "reads.py", input="a\nb\n")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"rest-{rank}").read_text() for rank in (0, 1)] == ["a\nb\n", ""]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("input()", "input()"),
        ("breakpoint()", "breakpoint()"),
        ("import pdb; pdb.set_trace()\n0", "the debugger"),
    ],
)
def test_without_input_one_sentence_says_how_to_get_some(
    oarlock: Command, tmp_path: Path, code: str, told: str
) -> None:
    write(tmp_path / "reads.py", code)
    done = oarlock("run", "-n", "2", "--name", "reads", "reads.py", input="a\n")
    assert done.returncode == 1
    assert f": NoInput: {told} {HOW}\n  at reads.py:" in done.stderr
    assert "not restarted: it would find no input again" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert runs.find("reads").state().generation == 1


def test_a_detached_run_has_no_input_and_its_end_is_not_that_of_a_file(
    oarlock: Command, tmp_path: Path
) -> None:
    """Other errors of that type are failures as any other."""
    write(tmp_path / "reads.py", "input()")
    oarlock("run", "-n", "1", "--detach", "--name", "reads", "reads.py", input="a\n")
    assert HOW in oarlock("attach", "reads").stderr
    write(tmp_path / "loads.py", "import io, pickle; pickle.load(io.BytesIO())")
    done = oarlock("run", "-n", "1", "--set", "limits.restarts=0", "loads.py")
    assert "EOFError: Ran out of input" in done.stderr
    done = oarlock("run", "--detach", "--stdin", "reads.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--detach and --stdin cannot be combined" in done.stderr


def test_a_breakpoint_stops_in_a_terminal(terminal: OpenTerminal, tmp_path: Path) -> None:
    write(tmp_path / "debugs.py", DEBUGS)
    client = terminal("run", "-n", "1", "debugs.py")
    client.until("(Pdb) ")
    client.type("answer = 42\nc\n")
    assert client.end() == 0, client.shown
    assert (tmp_path / "after").read_text() == "42"


@pytest.mark.parametrize("ends", ["Ctrl-D", "the client is killed"])
def test_what_is_typed_ends_with_the_client(terminal: OpenTerminal, tmp_path: Path, ends: str) -> None:
    write(tmp_path / "reads.py", READS)
    client = terminal("run", "-n", "1", "reads.py")
    client.type("a\n")
    eventually((tmp_path / "first").exists, "first line")
    if ends == "Ctrl-D":
        client.type("b\n\x04")
        assert client.end() == 0, client.shown
    else:
        client.process.send_signal(signal.SIGKILL)
    rest = tmp_path / "rest-0"
    eventually(lambda: rest.exists() and rest.read_text(), "end of the input")
    assert rest.read_text() == ("a|b\n" if ends == "Ctrl-D" else "a|")


def test_a_client_in_the_background_leaves_the_terminal_alone(home: Path, tmp_path: Path) -> None:
    """Who reads there from the background is stopped. With job control a shell's `&` makes a group of it."""
    write(tmp_path / "waits.py", WAITS)
    line = f"set -m; '{SCRIPT}' run -n 1 waits.py & read typed; echo $typed > typed; wait $!; exit $?"
    shell = Terminal(["bash", "-c", line], tmp_path)
    try:
        eventually((tmp_path / "before").exists, "start of the program")
        shell.type("for the shell\n")
        typed = tmp_path / "typed"  # which the shell creates before it writes
        assert eventually(lambda: typed.exists() and typed.read_text(), "typed line") == "for the shell\n"
        shell.type("for the next command\n")
        (tmp_path / "go").touch()
        assert shell.end() == 0, shell.shown
    finally:
        shell.close()
    assert not is_running(shell.process.pid)
