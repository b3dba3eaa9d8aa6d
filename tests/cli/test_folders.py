"""Programs and homes in folders of any name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

NAMES = ["oarlock x", 'it\'s "1" $HOME; [x]*? 100%s #é,=:&']
PROGRAM = """
import os, sys, beside
from pathlib import Path
import oarlock
print("in", Path(__file__).parent.name, "beside", beside.NAME, "home", Path(os.environ["OARLOCK_HOME"]).name)
oarlock.current().report(1, total=1)
"""


@pytest.mark.parametrize("way", ["--cold", "--warm=1s"])
def test_a_program_runs_in_a_folder_of_any_name(
    oarlock: Callable[..., CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each folder is the home of the run in it, too."""
    for name in NAMES:
        folder = tmp_path / "these" / name
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(PROGRAM)
        (folder / "beside.py").write_text(f"NAME = {name!r}")
        monkeypatch.setenv("OARLOCK_HOME", str(folder))
        done = oarlock("run", way, str(folder / "train.py"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"in {name} beside {name} home {name}" in done.stdout
    assert f"in {NAMES[-1]} beside" in oarlock("logs").stdout


def test_the_console_script_starts_from_a_folder_with_spaces(tmp_path: Path) -> None:
    """As pip writes it there: the kernel takes no spaces in the first line, so a shell starts Python."""
    place = tmp_path / "a b" / "bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    script = place / "oarlock"
    words = f"#!/bin/sh\n'''exec' \"{place / 'python'}\" \"$0\" \"$@\"\n' '''\n"
    script.write_text(words + "import sys\nfrom oarlock.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([script, "version"], capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("oarlock ")
