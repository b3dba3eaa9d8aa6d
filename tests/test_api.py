"""Oarlock from Python: `oarlock.Job(...)` and the `Run` it gives."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import oarlock
from oarlock.records import runs

ENDLESS = "import time\nprint('here I am', flush=True)\nwhile True: time.sleep(0.05)"


@pytest.fixture(autouse=True)
def _here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def program(text: str) -> str:
    Path("train.py").write_text(text)
    return "train.py"


def test_run_waits_shows_and_gives_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    train = program("import sys; print('args', sys.argv[1:])")
    run = oarlock.Job(train, workers=2, name="mine", args=["--epochs", "3"]).run()
    assert run.name.startswith("mine-")
    assert run.folder == runs.find(run.name).path
    assert run.state().state == "succeeded"
    shown = capsys.readouterr().out
    assert "worker-0 | args ['--epochs', '3']" in shown
    assert "worker-1 | args ['--epochs', '3']" in shown
    assert "oarlock | generation 1: 2 tasks" in shown


def test_quiet_is_quiet_and_logs_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = oarlock.Job(program("print('hello')")).run(name="called", quiet=True)
    assert run.name == "called"
    assert capsys.readouterr().out == ""
    assert [(line.task, line.text) for line in run.logs()] == [("worker-0", "hello")]


def test_a_failure_is_raised_with_its_exit_code() -> None:
    job = oarlock.Job(program("raise SystemExit(5)"), limits={"restarts": 0})
    with pytest.raises(oarlock.RunFailed, match="failed: worker-0: exit code 5") as caught:
        job.run(quiet=True)
    assert caught.value.exit_code == 5


def test_an_exception_is_told_with_its_place() -> None:
    job = oarlock.Job(program("\nraise ValueError('no luck')"), limits={"restarts": 0})
    with pytest.raises(oarlock.RunFailed, match=r"ValueError: no luck \(.*train.py:2\)"):
        job.run(quiet=True)


def test_submit_returns_at_once_and_the_run_can_be_cancelled() -> None:
    run = oarlock.Job(program(ENDLESS), name="long").submit()
    assert next(run.logs()).text == "here I am"
    assert run.state().state == "running"
    with pytest.raises(TimeoutError, match="has not ended"):
        run.wait(timeout=0.1)
    run.cancel()
    assert run.wait(timeout=300).state == "stopped"
    with pytest.raises(oarlock.RunFailed, match="stopped by the user") as caught:
        run.result()
    assert caught.value.exit_code == 130


def test_the_fields_are_those_of_the_job_file(tmp_path: Path) -> None:
    job = oarlock.Job(
        tmp_path / "train.py" if program("") else "",
        workers="2..4",
        roles={"worker": {"cpu": 2}, "evaluator": 1},
        warm=False,
        env={"A": "b"},
    )
    resolved = job._file.job
    assert (resolved.program, resolved.warm, resolved.env) == ("train.py", False, {"A": "b"})
    assert resolved.roles.worker is not None
    assert (str(resolved.roles.worker.replicas), resolved.roles.worker.cpu) == ("2..4", 2.0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"program": "nope.py"}, "program: nope.py: no such program"),
        ({"program": "train.py", "workers": 0}, "roles.worker.replicas: expected 1 or more"),
        ({"program": "train.py", "limts": {}}, "limts: no such field; did you mean limits"),
        ({"program": "train.py", "warm": "yes"}, "warm: expected true, false or a duration"),
        ({}, "there is nothing to run"),
    ],
)
def test_mistakes_are_found_when_the_job_is_made(home: Path, fields: dict[str, object], said: str) -> None:
    program("")
    with pytest.raises(oarlock.JobError, match=said):
        oarlock.Job(**fields)  # type: ignore[arg-type]
    assert not home.exists()


def test_ctrl_c_in_a_script_stops_its_run(tmp_path: Path) -> None:
    program(ENDLESS)
    script = "import oarlock\noarlock.Job('train.py', name='asked').run('asked-run')"
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert client.stdout is not None
    assert any("here I am" in line for line in client.stdout)
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=300)
    state = oarlock.Run(runs.find("asked-run")).wait(timeout=300)
    assert state.state == "stopped"
