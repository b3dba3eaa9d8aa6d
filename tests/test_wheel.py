"""The wheel, installed where there is nothing else: no checkout, no framework."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it; its folder of scripts."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    _call(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, REPOSITORY)
    [wheel] = folder.glob("oarlock-*.whl")
    venv.create(folder / "env", symlinks=True)  # without pip: ours installs into it
    python = folder / "env" / "bin" / "python"
    _call(*pip, "--python", python, "install", "-q", wheel)
    return folder / "env" / "bin"


def _call(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=500,
        **{"check": True, **options},
    )


def test_the_wheel_gives_help_ps_doctor_and_a_run(installed: Path, home: Path, tmp_path: Path) -> None:
    """One test: making the environment is what takes the time."""
    env = {**os.environ, "PATH": f"{installed}:/usr/bin:/bin"}
    settings = {"cwd": tmp_path, "env": env, "check": False}
    assert "run" in _call("oarlock", "--help", **settings).stdout
    assert _call("oarlock", "ps", **settings).returncode == 0
    doctor = _call("oarlock", "doctor", **settings)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "pip install" in doctor.stdout
    page = "from oarlock.serving.page import page_files; print(*map(page_files.read, page_files.NAMES))"
    assert "<!doctype html>" in _call("python", "-c", page, **settings).stdout
    (tmp_path / "train.py").write_text("import oarlock; print('rank', oarlock.current().rank)")
    done = _call("oarlock", "run", "-n", "2", "train.py", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker-1 | rank 1" in done.stdout
