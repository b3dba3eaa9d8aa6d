"""The README's job file and programs run as they stand; test_commands.py runs its commands."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tests.support.commands import Command

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_job_file_is_valid(oarlock: Command, tmp_path: Path) -> None:
    [job] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "train.py").write_text("print('trained')")
    (tmp_path / "job.yaml").write_text(job)
    done = oarlock("run")
    assert done.returncode == 0, done.stderr
    assert "worker-1 | trained" in done.stdout


def test_the_program_reports_its_steps(oarlock: Command, tmp_path: Path) -> None:
    program, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    given = "batches = [1, 2, 3]\ndef train(batch): return 1 / batch\n"
    (tmp_path / "train.py").write_text(given + textwrap.dedent(program))
    done = oarlock("run", "train.py")
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_the_program_that_is_kept_goes_on(oarlock: Command, tmp_path: Path) -> None:
    _, program = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    program = program.replace("10_000", "50").replace("model=model, optimizer=optimizer", "sum=0")
    given = """
import oarlock, os, time
batches = oarlock.data.Batches(48, 2)
me = oarlock.current()
def train_step(examples):
    state.sum += state.step
    if state.step == 40 and me.generation == 1:
        deadline = time.monotonic() + 250
        while not list(me.checkpoints.glob("step-*")) and time.monotonic() < deadline:
            time.sleep(0.01)  # for the first checkpoint, which is written behind the steps
        os.kill(os.getpid(), 9)
    return 1.0
"""
    program = program.replace('save="1m"', "save=10") + "print('sum', state.sum)"
    (tmp_path / "train.py").write_text(given + program)
    done = oarlock("run", "-n", "1", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming from step" in done.stdout
    assert f"sum {sum(range(50))}" in done.stdout


def test_the_python_call_works(home: Path, tmp_path: Path, oarlock: Command) -> None:
    [call] = re.findall(r'`(oarlock\.Job\("train\.py".*?\.run\(\))`', README)
    (tmp_path / "train.py").write_text("print('hello')")
    (tmp_path / "start.py").write_text(
        f"import oarlock\nrun = {call}\nassert run.state().state == 'succeeded'"
    )
    done = oarlock("run", "-n", "1", "start.py")  # a run that starts a run
    assert done.returncode == 0, done.stdout + done.stderr
