"""`oarlock run` without a terminal: what goes to the program, what is shown, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from tests.support.commands import SCRIPT
from tests.support.small_programs import ENDLESS, STUBBORN, has_said, write
from tests.support.waiting import eventually


def test_options_before_the_program_are_ours_and_those_behind_it_its_own(
    oarlock: Any, tmp_path: Path
) -> None:
    write(tmp_path / "show.py", "import sys; print(sys.argv[1:])")
    for words, expected in {
        ("-n", "2", "show.py", "--epochs", "3", "-n", "5"): ["--epochs", "3", "-n", "5"],
        ("-n", "2", "show.py", "--", "--epochs", "3"): ["--epochs", "3"],
        ("-n", "2", "show.py", "a", "--", "b"): ["a", "--", "b"],
    }.items():
        done = oarlock("run", *words)
        assert done.returncode == 0, done.stderr
        assert [f"worker-{index} | {expected}" in done.stdout for index in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    ("args", "text", "told"),
    [
        (["--workers", "4"], "", "--workers 4"),
        (["--epochs", "3", "--workers=4"], "", "--workers=4"),
        (["-d", "--epochs", "3"], "# detached --d", "-d"),
        (["--workers", "4"], "parser.add_argument('--workers', type=int)", None),
        (["--workers", "4"], "# shared out to the workers", "--workers 4"),
        (["--workers", "4"], "class Args:\n    workers: int = 1", None),
        (["-n", "4"], 'parser.add_argument("-n")', None),
        (["--epochs", "3"], "", None),
        (["a", "--", "--workers", "4"], "", None),
    ],
)
def test_an_option_of_ours_behind_the_program_is_said(
    oarlock: Any, tmp_path: Path, args: list[str], text: str, told: str | None
) -> None:
    (tmp_path / "train.py").write_text(f"{text}\n")
    done = oarlock("run", "--dry-run", "--json", "train.py", *args)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["args"] == args, "it is the program's all the same"
    rule = f"{told} goes to train.py; for Oarlock, put it first: oarlock run {told} train.py"
    assert done.stderr == ("" if told is None else f"oarlock: {rule}\n")


def test_all_options_of_ours_behind_the_program_are_said_in_one_line(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("parser.add_argument('--evaluator')\n")
    args = ["--workers=4", "--lr", "1", "--ps", "1", "--evaluator", "--name", "-d", "--cold", "--", "--chief"]
    done = oarlock("run", "--dry-run", "--json", "train.py", *args)
    assert done.stderr == (
        "oarlock: --workers=4, --ps 1, --name -d and --cold go to train.py; for Oarlock, put them first: "
        "oarlock run --workers=4 --ps 1 --name -d --cold train.py\n"
    )


def test_without_a_target_the_job_file_here_runs_and_dashes_give_arguments(
    oarlock: Any, tmp_path: Path
) -> None:
    write(tmp_path / "show.py", "import sys; print(sys.argv[1:])")
    (tmp_path / "job.yaml").write_text("program: show.py\nargs: [from, file]\n")
    assert "worker-0 | ['from', 'file']" in oarlock("run").stdout
    assert "worker-0 | ['--epochs', '3']" in oarlock("run", "--", "--epochs", "3").stdout


def test_flags_reach_the_job(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    flags = [
        "--chief",
        "--ps",
        "2",
        "--evaluator",
        "--framework",
        "none",
        "--cold",
        "--env",
        "A=b=c",
        "--env",
        "B=1",
    ]
    done = oarlock("run", "--dry-run", "--json", "-n", "3", *flags, "--set", "limits.restarts=9", "train.py")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job"]
    assert job["env"] == {"A": "b=c", "B": "1"}
    assert job["warm"] is False
    assert job["framework"] == "none"
    assert job["limits"]["restarts"] == 9
    assert {name: role["replicas"] for name, role in job["roles"].items()} == {
        "chief": 1,
        "worker": 3,
        "ps": 2,
        "evaluator": 1,
    }


def test_what_is_imported_may_be_kept(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = oarlock("run", "--dry-run", "--json", "--warm", "10m", "train.py")
    assert json.loads(done.stdout)["job"]["warm"] == "10m", done.stderr
    done = oarlock("run", "--warm", "long", "train.py")
    assert done.returncode == 2
    assert "--warm: expected true, false or a duration such as 90s, 10m or 1h30m" in done.stderr


def test_a_module_runs_instead_of_the_files_program(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "other.py", "import sys; print('other', sys.argv[1:])")
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text("program: train.py\n")
    done = oarlock("run", "-n", "2", "-m", "other", "--lr", "0.1", "x", "--", "--detach")
    assert "worker-1 | other ['--lr', '0.1', 'x', '--', '--detach']" in done.stdout, done.stderr
    assert "goes to" not in done.stderr


@pytest.mark.parametrize(
    "module", [["-m", "pkg.mod"], ["-mpkg.mod"], ["--module=pkg.mod"], ["-fm", "pkg.mod"]]
)
def test_all_that_follows_a_module_is_the_modules(oarlock: Any, tmp_path: Path, module: list[str]) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mod.py").touch()
    before = ["--dry-run", "--json", "--set=limits.restarts=9", "--name", "m"]
    done = oarlock("run", *before, *module, "--lr", "0.1", "-n", "3", "--json")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job"]
    assert (job["module"], job["args"]) == ("pkg.mod", ["--lr", "0.1", "-n", "3", "--json"])
    assert job["roles"]["worker"]["replicas"] == 1
    told = "-n 3 and --json go to pkg.mod; for Oarlock, put them first: oarlock run -n 3 --json -m pkg.mod"
    assert done.stderr == f"oarlock: {told}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nproc_per_node", "4"], "--nproc_per_node is torchrun's: here it is -n 4 (workers)"),
        (["--no-such", "2"], "No such option '--no-such'."),
        (["python3", "-u"], "python3: Oarlock starts Python itself: oarlock run train.py --lr 1"),
        (
            ["torchrun", "--nproc_per_node=2"],
            "torchrun: Oarlock is used instead of torchrun: oarlock run -n 2",
        ),
    ],
)
def test_what_other_launchers_understand_is_said_as_it_is_here(
    oarlock: Any, home: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "train.py").touch()
    done = oarlock("run", *words, "train.py", "--lr", "1")
    assert done.returncode == 2
    assert done.stderr.startswith(f"oarlock: {told}")
    assert not home.exists()


def test_a_file_called_as_a_launcher_is_a_target_like_any_other(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "train.py").touch()
    assert oarlock("run", "--dry-run", "python").returncode == 0


def test_a_dry_run_shows_ranks_and_environments_and_creates_nothing(
    oarlock: Any, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    told = json.loads(oarlock("run", "--dry-run", "--json", "-n", "2", "--evaluator", "train.py").stdout)
    assert set(told) == {"job", "folder", "source", "tasks"}
    assert [(task["name"], task["rank"]) for task in told["tasks"]] == [
        ("worker-0", 0),
        ("worker-1", 1),
        ("evaluator-0", None),
    ]
    assert set(told["tasks"][0]) == {"name", "role", "index", "rank", "args", "env"}
    assert [task["env"].get("RANK") for task in told["tasks"]] == ["0", "1", None]
    assert json.loads(told["tasks"][1]["env"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    text = oarlock("run", "--dry-run", "-n", "2", "train.py").stdout
    assert "program: train.py" in text
    assert "  WORLD_SIZE=2" in text
    assert "  OARLOCK_RANK=1" in text
    assert not home.exists()


@pytest.mark.parametrize("machines", ["1", "2"])
def test_a_dry_run_tells_the_truth(oarlock: Any, tmp_path: Path, machines: str) -> None:
    write(
        tmp_path / "train.py",
        "import json, os; json.dump(dict(os.environ), open(os.environ['POD_NAME'], 'w'))",
    )
    words = ["-n", "3", "--machines", machines, "--name", "true", "--env", "A=b", "train.py"]
    told = json.loads(oarlock("run", "--dry-run", "--json", *words).stdout)["tasks"]
    assert oarlock("run", *words).returncode == 0
    for task in told:
        found = json.loads((tmp_path / task["name"]).read_text())
        fixed = {key: value for key, value in task["env"].items() if "<port" not in value}
        assert fixed.items() <= found.items()
        assert {"RANK", "MODEL_DIR", "A", "OMP_NUM_THREADS", "GROUP_RANK"} <= set(fixed) | set(os.environ)
        assert task["env"].keys() >= {key for key in found if key.startswith("OARLOCK_")} - {
            "OARLOCK_HOME",
            "OARLOCK_FD",
        }


def test_arguments_may_name_rank_world_and_coordinator(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """
        import os, sys
        there = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        print(sys.argv[1:-1], sys.argv[-1] == there)
        """,
    )
    words = ("train.py", "--rank={rank}", "of {world}", '{"rank": {}}', "{{rank}}", "tcp://{coordinator}")
    done = oarlock("run", "-n", "2", *words)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        expected = [f"--rank={rank}", "of 2", '{"rank": {}}', "{rank}"]
        assert f"worker-{rank} | {expected} True" in done.stdout
    shown = oarlock("run", "--dry-run", "-n", "2", *words).stdout
    assert "arguments of worker-1\n  --rank=1 'of 2'" in shown
    refused = oarlock("run", "-n", "2", "--ps", "1", *words)
    assert refused.returncode == 2
    assert refused.stderr == (
        "oarlock: arguments: {rank} has no value in ps, which has no rank; "
        "let the program read RANK from its environment\n"
    )


def test_the_shells_folders_are_used_and_said(oarlock: Any, home: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import os; print(os.environ['DATA_DIR'], os.environ['POD_NAME'])")
    shell = {**os.environ, "DATA_DIR": "there", "POD_NAME": "notebook-0"}
    done = oarlock("run", "train.py", env=shell)
    assert f"worker-0 | {tmp_path}/there worker-0" in done.stdout, done.stderr
    assert done.stderr.splitlines()[:2] == [
        f"oarlock: data: {tmp_path}/there, from the shell's DATA_DIR",
        "oarlock: the shell's POD_NAME is ignored: Oarlock sets it for each task",
    ]
    done = oarlock("run", "--on", "kubernetes", "--dry-run", "train.py", env=shell)
    assert "DATA_DIR=/oarlock/store/data/train" in done.stdout, done.stderr
    assert str(home) not in done.stdout
    assert "the shell's DATA_DIR is ignored: pods do not have this machine's folders" in done.stderr


def test_machines_are_played_on_this_one(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py", "import os; print('machine', os.environ['GROUP_RANK'], 'agent', os.getppid())"
    )
    done = oarlock("run", "-n", "3", "--machines", "2", "train.py")
    assert done.returncode == 0, done.stderr
    said = [line.split()[2:] for line in sorted(done.stdout.splitlines()) if line.startswith("worker-")]
    assert [words[1] for words in said] == ["0", "0", "1"]
    assert len({words[3] for words in said}) == 2


def test_more_machines_than_workers_are_refused(oarlock: Any, home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for words in (["--dry-run"], []):
        done = oarlock("run", "-n", "2", "--machines", "3", *words, "train.py")
        assert done.returncode == 2
        assert done.stderr.startswith("oarlock: 3 machines are too many for 2 workers")
    assert runs.all_runs() == []
    assert oarlock("run", "--machines", "0", "train.py").returncode == 2


def test_output_is_prefixed_and_the_end_says_what_came_of_it(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """
        import oarlock
        me = oarlock.current()
        me.report(step=7, total=7, loss=0.25)
        if me.is_chief:
            (me.model / "weights").write_text("1")
        print("bar 1%\\rbar 100%")
        """,
    )
    done = oarlock("run", "-n", "2", "--name", "first", "train.py")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "oarlock | generation 1: 2 tasks" in lines
    assert "worker-0 | bar 100%" in lines
    assert "worker-1 | bar 100%" in lines
    assert "oarlock | step 7/7  loss 0.25" in lines
    assert lines[-2].startswith("first succeeded in ")
    assert lines[-2].endswith(": 7 steps")
    assert lines[-1] == f"model: {runs.home()}/runs/first/model"
    assert done.stderr == "  oarlock logs first\n"


def test_a_program_that_exits_7_makes_us_exit_7(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import os\nfor n in range(9): print('word', n, flush=True)\nos._exit(7)")
    done = oarlock("run", "--name", "seven", "train.py")
    assert done.returncode == 7
    last = done.stderr.splitlines()
    assert last[0].endswith("exit code 7")
    assert last[1:5] == ["worker-0: exit code 7", "  | word 6", "  | word 7", "  | word 8"]
    assert last[5].startswith("not restarted: it failed twice")
    assert last[6] == "more: oarlock logs --failed seven"
    assert len(last) == 7


def test_an_exception_is_told_in_at_most_ten_lines_with_its_place(oarlock: Any, tmp_path: Path) -> None:
    message = "\\n".join(f"line {number} of the message" for number in range(30))
    write(tmp_path / "train.py", f"def fail():\n    raise ValueError('{message}')\nfail()\n")
    done = oarlock("run", "-n", "2", "--set", "limits.restarts=0", "train.py")
    assert done.returncode == 1
    last = done.stderr.splitlines()
    assert len(last) <= 10
    assert "ValueError: line 0 of the message" in last[1]
    assert "  at train.py:2" in last
    assert "not restarted: limits.restarts is 0" in last
    assert last[-1].startswith("more: oarlock logs --failed train-")


def test_an_error_without_a_text_is_told_without_seams(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "assert not [1]")
    done = oarlock("run", "train.py")
    assert "oarlock | worker-0 failed: AssertionError; restarting (2 left)" in done.stdout
    assert done.stderr.splitlines()[1:4] == [
        *("worker-0: AssertionError", "  at train.py:1"),
        "not restarted: it failed twice in the same way without a step in between",
    ]


def test_a_message_can_hold_anything(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", r"raise ValueError('half \udc80 \x1b[2Jcleared\x07 0%\r9')")
    done = oarlock("run", "--set", "limits.restarts=0", "train.py")
    assert done.returncode == 1
    assert "worker-0: ValueError: 9alf \\udc80 cleared 0%" in done.stderr.splitlines()[1]
    assert oarlock("status").returncode == 0
    assert json.loads(oarlock("status", "--json").stdout)["failure"]["type"] == "ValueError"


def test_a_signal_makes_128_and_its_number(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    done = oarlock("run", "--set", "limits.restarts=0", "train.py")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "worker-0: killed by SIGSEGV" in done.stderr
    assert '  | File "' in done.stderr
    assert "train.py" in done.stderr.partition('  | File "')[2].splitlines()[0]


def test_a_restart_is_said(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        "import os\nif os.environ['OARLOCK_GENERATION'] == '1': raise KeyError('x')",
    )
    done = oarlock("run", "train.py")
    assert done.returncode == 0
    assert "oarlock | worker-0 failed: KeyError: 'x'; restarting (2 left)" in done.stdout
    assert "oarlock | generation 2: 1 task" in done.stdout
    assert ": 1 restart" in done.stdout


def test_the_runtime_limit_ends_with_124(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDLESS)
    done = oarlock("run", "--set", "limits.runtime=1s", "train.py")
    assert done.returncode == 124
    assert "limits.runtime" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope.py"], r"oarlock: nope.py: no such program"),
        (["job.yaml"], r"oarlock: job.yaml:2: wrokers: no such field"),
        (
            ["--set", "limits.restarts=many", "train.py"],
            r"oarlock: --set limits.restarts=many: expected a whole",
        ),
        (["-n", "x", "train.py"], r"oarlock: --workers: expected a whole number"),
        (["--env", "A", "train.py"], r"oarlock: --env A: expected a name and a value"),
        (["--name", "../x", "train.py"], r"oarlock: invalid run name '../x'"),
        (["--framework", "troch", "train.py"], r"oarlock: --framework: .*did you mean torch"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_created(
    oarlock: Any, home: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text("program: train.py\nwrokers: 2\n")
    done = oarlock("run", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert re.match(said, line), line
    assert not home.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--on", "kubernetes", "--machines", "2", "train.py"],
            "--machines is for --on local, not for --on kubernetes",
        ),
        (["--namespace", "team", "train.py"], "--namespace is for --on kubernetes, not for --on local"),
        (["-d", "-f", "train.py"], "--detach and --follow cannot be combined"),
        (["--resume", "x", "-n", "2"], "remove --workers"),
        (["--resume", "x", "train.py"], "remove TARGET"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    oarlock: Any, home: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "train.py").touch()
    done = oarlock("run", *words)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[0]
    assert not home.exists()


def test_a_name_that_is_taken_is_refused(oarlock: Any, records: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = oarlock("run", "--name", "good-run", "train.py")
    assert done.returncode == 2
    assert "there is a run called good-run" in done.stderr


def test_json_gives_every_event_and_last_the_state(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('hello')\nraise SystemExit(3)")
    done = oarlock("run", "--json", "--set", "limits.restarts=0", "--name", "told", "train.py")
    assert done.returncode == 3
    assert done.stderr == ""
    *happened, state = map(json.loads, done.stdout.splitlines())
    assert happened == list(runs.find("told").events())
    assert [event["kind"] for event in happened][-1] == "end"
    assert state["kind"] == "state"
    assert (state["run"], state["state"], state["code"]) == ("told", "failed", 3)
    assert state["folders"]["record"] == str(runs.find("told").path)


def test_detached_it_prints_the_name_and_returns(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDLESS)
    done = oarlock("run", "-d", "train.py")
    assert done.returncode == 0
    run = runs.find(done.stdout.strip())
    assert run.is_held()
    assert done.stderr == f"  oarlock attach {run.name}\n"


def test_detached_with_json_gives_the_state(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    state = json.loads(oarlock("run", "-d", "--json", "--name", "away", "train.py").stdout)
    assert (state["kind"], state["run"]) == ("state", "away")


def test_a_failed_run_is_gone_on_with(oarlock: Any, tmp_path: Path) -> None:
    """Its earlier output is not shown again, and its generations go on counting."""
    write(
        tmp_path / "train.py",
        "import os, pathlib\nprint('try', os.environ['OARLOCK_GENERATION'])\n"
        "if not pathlib.Path('mended').exists(): raise SystemExit(5)",
    )
    assert oarlock("run", "--set", "limits.restarts=0", "--name", "job", "train.py").returncode == 5
    (tmp_path / "mended").touch()
    done = oarlock("run", "--resume", "job")
    assert done.returncode == 0, done.stderr
    assert "worker-0 | try 2" in done.stdout
    assert "try 1" not in done.stdout
    assert "job succeeded" in done.stdout
    again = oarlock("run", "--resume", "job")
    assert (again.returncode, again.stderr) == (
        1,
        "oarlock: job has succeeded; there is nothing to resume\n",
    )


def test_the_first_interrupt_stops_and_the_second_kills(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", STUBBORN)
    words = ["-n", "2", "--set", "limits.grace=1h", "--name", "wilful"]
    client = _client(tmp_path, "run", *words, "train.py")
    lines = iter(client.stdout or ())
    _until_shown(lines, "here I am")
    client.send_signal(signal.SIGINT)
    assert any("stopping wilful (Ctrl-C again to kill)" in line for line in lines)
    assert runs.find("wilful").is_held()
    client.send_signal(signal.SIGINT)
    _, stderr = client.communicate(timeout=300)
    assert client.returncode == 130
    assert "wilful stopped after" in stderr
    assert "oarlock run --resume wilful" in stderr
    assert runs.find("wilful").state().state == "stopped"


def test_one_interrupt_is_enough_for_a_program_that_listens(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", ENDLESS)
    client = _client(tmp_path, "run", "--json", "train.py")
    _until_shown(iter(client.stdout or ()), '"state": "started"')
    eventually(lambda: has_said(runs.all_runs()[0], "here I am"), "sign of life")
    client.send_signal(signal.SIGINT)
    stdout, stderr = client.communicate(timeout=300)
    assert client.returncode == 130
    assert json.loads(stdout.splitlines()[-1])["state"] == "stopped"
    assert "(Ctrl-C again to kill)" in stderr


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_the_run_outlives_its_client(home: Path, tmp_path: Path, sig: signal.Signals) -> None:
    write(tmp_path / "train.py", ENDLESS)
    client = _client(tmp_path, "run", "train.py")
    _until_shown(iter(client.stdout or ()), "here I am")
    client.send_signal(sig)
    client.communicate(timeout=300)
    assert client.returncode == (143 if sig == signal.SIGTERM else -sig)
    [run] = runs.all_runs()
    assert run.is_held()
    assert run.state().state == "running"


def _until_shown(lines: Iterator[str], text: str) -> None:
    """By the client itself: the run may be under way before it listens to signals."""
    assert any(text in line for line in lines), text


def _client(cwd: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCRIPT, *words],
        cwd=cwd,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_worker_that_fails_beside_the_first_is_named_in_the_verdict(oarlock: Any, tmp_path: Path) -> None:
    program = """
        import os, pathlib, time
        first = pathlib.Path("first")
        if os.environ["RANK"] == "0":
            first.with_name("draft").write_text(str(os.getpid()))
            first.with_name("draft").rename(first)
        else:  # it fails once the other has ended
            while not first.exists() or os.path.exists(f"/proc/{first.read_text()}"):
                time.sleep(0.01)
            raise ValueError("too far behind")
        """
    write(tmp_path / "train.py", program)
    done = oarlock("run", "-n", "2", "train.py")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "but worker-1 failed: ValueError: too far behind"
