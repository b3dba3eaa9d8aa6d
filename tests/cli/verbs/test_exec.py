"""`oarlock exec` of a local run: in the program's folder, with what the task has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from tests.support.small_programs import ENDLESS, who_said, write
from tests.support.waiting import eventually

SHOW = ("python3", "-c", "import json, os; print(json.dumps(dict(os.environ, cwd=os.getcwd())))")
# What a task of its own sees, into a file: the measure for the command's.
TELLING = "import json, os\njson.dump(dict(os.environ), open('task-' + os.environ['RANK'], 'w'))\n" + ENDLESS


@pytest.fixture(params=["warm", "cold", "command"])
def living(oarlock: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Its folder; two tasks run."""
    write(tmp_path / "train.py", TELLING)
    (tmp_path / "command.yaml").write_text("name: living\ncommand: [python3, train.py]\n")
    words = {"warm": ["train.py"], "cold": ["--cold", "train.py"], "command": ["command.yaml"]}[request.param]
    done = oarlock("run", "-d", "--name", "living", "-n", "2", "--env", "MINE=yes", *words)
    assert done.returncode == 0, done.stderr
    run = runs.find("living")
    eventually(lambda: who_said(run, "here I am") == {"worker-0", "worker-1"}, "both tasks")
    eventually(lambda: all(task.pid for task in run.state().tasks.values()), "word of both")
    return tmp_path


def test_it_has_the_tasks_variables_but_no_addresses(oarlock: Any, living: Path) -> None:
    for rank, words in ((0, ()), (0, ("--task", "worker-0")), (1, ("--task", "worker-1"))):
        done = oarlock("exec", *words, "--", *SHOW)
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        theirs = json.loads((living / f"task-{rank}").read_text())
        assert found.pop("cwd") == str(living)
        assert (found["OARLOCK_RANK"], found["MINE"]) == (str(rank), "yes")
        assert "OARLOCK_FD" not in found
        common = found.keys() & theirs.keys()
        assert {name: found[name] for name in common} == {name: theirs[name] for name in common}
        assert {"CHECKPOINT_DIR", "MODEL_DIR", "LOG_DIR", "OARLOCK_GENERATION", "WORLD_SIZE"} <= common


def test_as_json_with_the_commands_code(oarlock: Any, living: Path) -> None:
    done = oarlock("exec", "living", "--json", "--", "sh", "-c", "pwd; echo oh >&2; exit 7")
    assert json.loads(done.stdout) == {"code": 7, "stdout": f"{living}\n", "stderr": "oh\n"}
    assert done.returncode == 7


# The command line, which writes down the words of every process that it starts or becomes.
WITNESS = """
import sys
from oarlock.cli import main

def note(event, told):
    if event in ("subprocess.Popen", "os.exec"):
        print(*told[1], file=seen, flush=True)

seen = open("seen", "a")
sys.addaudithook(note)
main()
"""


@pytest.mark.parametrize("living", ["warm"], indirect=True)
def test_the_jobs_env_is_on_no_command_line(living: Path) -> None:
    """Where every user of the machine could read it."""
    for words in ((), ("--json",)):
        show = ("python3", "-c", "import os; print(os.environ['MINE'])")
        client = [sys.executable, "-c", WITNESS, "exec", *words, "--", *show]
        done = subprocess.run(client, cwd=living, capture_output=True, text=True, check=True)
        assert "yes" in done.stdout, done.stderr
    seen = (living / "seen").read_text()
    assert seen.count("os.environ['MINE']") == 2
    assert "yes" not in seen


def test_a_task_that_does_not_run_is_told(oarlock: Any, records: Path) -> None:
    done = oarlock("exec", "good-run", "--", *SHOW)
    assert done.returncode == 0
    told = "worker-0 is not running (succeeded): the command runs without its variables"
    assert done.stderr == f"oarlock: {told}\n"
    assert "OARLOCK_RANK" not in json.loads(done.stdout)


def test_what_cannot_be_is_told(oarlock: Any, records: Path, tmp_path: Path) -> None:
    for words, code, said in (
        (("good-run", "--", "nosuch"), 127, "oarlock: nosuch: No such file or directory"),
        (
            ("good-run", "--task", "ps-0", "--", "ls"),
            2,
            "good-run has no task ps-0; it has worker-0, worker-1",
        ),
        (("good-run",), 2, "no command; for example: oarlock exec good-run -- nvidia-smi"),
    ):
        done = oarlock("exec", *words)
        assert done.returncode == code
        assert said in done.stderr
        assert len(done.stderr.splitlines()) <= 2


def test_a_folder_that_is_gone_is_told(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    write(tmp_path / "program" / "train.py", "print('hello')")
    done = oarlock("run", "--name", "short", "train.py", cwd=tmp_path / "program")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "program")
    done = oarlock("exec", "short", "--", "ls")
    assert (done.returncode, done.stderr) == (
        1,
        f"oarlock: the program's folder {tmp_path / 'program'} is gone\n",
    )
