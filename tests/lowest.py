"""The tests that need no framework and no cluster, with the lowest versions that pyproject.toml admits.

A bound that is too low fails here, not on a user's machine. requirements/lowest.txt names the versions and
tests/test_requirements.py compares it with pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = [
    "program/test_imports.py",
    "job/test_model.py",
    "job/test_job_file.py",
    "job/test_kubernetes_section.py",
    "program/test_ignore_files.py",
    "docs/test_readme.py::test_the_job_file_is_valid",
    "cli/test_group.py",
    "screens/test_live.py",
    "screens/test_event_text.py",
    "kubernetes/test_diagnose_pure.py",
    "serving/batching",
    "serving/http/test_app.py",
    "serving/dialects/test_tensorflow_predict.py",
]
# Build backend and tools included, so that nothing is looked up but what the file names.
INSTALL = ["install", "-q", "--no-deps", "--disable-pip-version-check"]


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="oarlock-lowest-") as folder:
        venv.create(folder, symlinks=True)  # without pip: ours installs into it
        python = Path(folder) / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), *INSTALL]
        subprocess.run([*pip, "--require-hashes", "-r", "requirements/lowest.txt"], cwd=ROOT, check=True)
        subprocess.run([*pip, "--no-build-isolation", "--editable", "."], cwd=ROOT, check=True)
        pytest = [
            str(python),
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-k",
            "not whatever_is_changed",
            *words,
        ]
        tests = [Path("tests", name) for name in TESTS]
        return subprocess.run([*pytest, *tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
