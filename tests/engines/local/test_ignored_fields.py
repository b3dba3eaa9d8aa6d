from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.small_programs import write

JOB = """
program: train.py
roles:
  worker:
    - {gpu: 2, image: python}
    - {cpu: 2, gpu: 2}
kubernetes:
  labels: {team: a}
  volumes: {set: {path: /set, claim: images}}
"""


def test_what_has_no_effect_here_is_said_once(oarlock: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('trained')")
    (tmp_path / "job.yaml").write_text(JOB)
    without_gpus = {"PATH": "/usr/bin:/bin", "OARLOCK_HOME": str(tmp_path / "home")}
    done = oarlock("run", "--dry-run", env=without_gpus)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "oarlock: ignored on this machine: roles.worker.cpu, roles.worker.image, kubernetes.volumes, "
        "gpu (this machine has none)"
    ]
    assert oarlock("run", "--dry-run", "train.py").stderr == ""
    assert "ignored" not in oarlock("run", "--on", "kubernetes", "--dry-run").stderr
