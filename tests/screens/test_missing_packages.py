"""A run on this machine that misses a package which the job's pods would install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_programs import write

ADVICE = "pods install {0}, as the job's pip: says; on this machine: pip install {0}"


@pytest.mark.parametrize(
    ("program", "job", "package"),
    [
        ("import no_such_thing.part", "pip: [numpy, no-such-thing]", "no-such-thing"),
        ("import no_such_thing", "pip: [numpy]", None),
        ("open('no-such-thing')", "pip: [no-such-thing]", None),
    ],
)
def test_a_missing_module_is_installed_by_the_package_that_the_job_names(
    oarlock: Any, tmp_path: Path, program: str, job: str, package: str | None
) -> None:
    write(tmp_path / "train.py", program)
    (tmp_path / "job.yaml").write_text(f"program: train.py\n{job}\n")
    done = oarlock("run")
    assert done.returncode == 1, done.stderr
    assert "no" in done.stderr.partition("worker-0: ")[2], done.stderr
    assert ("pods install" in done.stderr) == (package is not None), done.stderr
    assert package is None or ADVICE.format(package) in done.stderr


def test_an_ingest_has_packages_of_its_own_and_they_are_quoted(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "")
    write(tmp_path / "prepare.py", "import PIL_of_nobody")
    text = "program: train.py\ningest: {program: prepare.py, pip: ['PIL-of-nobody>=2']}\n"
    (tmp_path / "job.yaml").write_text(text)
    done = oarlock("run")
    assert "ingest-0: ModuleNotFoundError: No module named 'PIL_of_nobody'" in done.stderr
    assert "on this machine: pip install 'PIL-of-nobody>=2'" in done.stderr, done.stderr
