"""The README's commands and program run as they stand."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

README = (Path(__file__).parents[1] / "README.md").read_text()
Command = Callable[..., "CompletedProcess[str]"]


def test_every_command_works_in_the_order_it_is_told(oarlock: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import oarlock; oarlock.current().report(1, total=1, loss=0.5)")
    commands = re.findall(r"^    oarlock (.+?)(?: +#.*)?$", README, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        done = oarlock(*command.split())
        assert done.returncode == 0, f"oarlock {command}: {done.stdout}{done.stderr}"


def test_the_job_file_is_valid(oarlock: Command, tmp_path: Path) -> None:
    [job] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "train.py").write_text("print('trained')")
    (tmp_path / "job.yaml").write_text(job)
    done = oarlock("run")
    assert done.returncode == 0, done.stderr
    assert "worker-1 | trained" in done.stdout


def test_the_program_reports_its_steps(oarlock: Command, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    given = "batches = [1, 2, 3]\ndef train(batch): return 1 / batch\n"
    (tmp_path / "train.py").write_text(given + textwrap.dedent(program))
    done = oarlock("run", "train.py")
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_the_python_call_works(home: Path, tmp_path: Path, oarlock: Command) -> None:
    [call] = re.findall(r'`(oarlock\.Job\("train\.py".*?\.run\(\))`', README)
    (tmp_path / "train.py").write_text("print('hello')")
    (tmp_path / "start.py").write_text(
        f"import oarlock\nrun = {call}\nassert run.state().state == 'succeeded'"
    )
    done = oarlock("run", "-n", "1", "start.py")  # a run that starts a run
    assert done.returncode == 0, done.stdout + done.stderr
