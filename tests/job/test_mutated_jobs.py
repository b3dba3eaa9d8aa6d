"""Thousands of job files whose structure was changed at random: a job, or one clear line, nothing else.

They are all valid YAML, so that what refuses them is the job's own checks."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import yaml

from oarlock.errors import JobError
from oarlock.job.job_file import load
from tests.support.soaking import moments

JOB: dict[str, Any] = {
    "name": "mnist",
    "program": "train.py",
    "args": ["--epochs", 3],
    "env": {"LEVEL": "2", "MODE": "fast"},
    "framework": "torch",
    "roles": {
        "chief": 1,
        "worker": {"replicas": "2..8", "processes": 2, "cpu": 2, "memory": "4Gi", "gpu": 2},
        "ps": 1,
        "evaluator": {"replicas": 1},
    },
    "storage": {"data": "./data", "checkpoints": "./ckpt", "model": "s3://bucket/model", "logs": "./logs"},
    "limits": {"restarts": 3, "stall": "10m", "runtime": "2h", "rendezvous": "5m", "grace": "30s"},
    "warm": True,
    "seed": 7,
    "kubernetes": {"namespace": "team", "labels": {"a": "b"}},
}
ODD: list[Any] = [None, True, 0, -1, 2**70, 0.5, 1e400, "", "none", "2..8", "8..2", "10m", "4Gi", "x" * 300]
ODD += [
    [],
    [1],
    ["a", ["b"]],
    {},
    {"a": 1},
    {"replicas": 2},
    {"replicas": {"min": 1}},
    "é\u2028",
    "*",
    "../x",
    [{}],
]
NAMES = ["programm", "worker", "workers", "a.b", "limits", "roles", "restart", "5", "true", "name", "env"]


def mutated(chance: random.Random) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    for _ in range(chance.randrange(1, 4)):
        _change(job, chance)
    return job


def _change(data: dict[str, Any], chance: random.Random) -> None:
    key = chance.choice(list(data)) if data else "new"
    inner = data.get(key)
    how = chance.random()
    if isinstance(inner, dict) and how < 0.6:
        _change(inner, chance)
    elif how < 0.7:
        data.pop(key, None)
    elif how < 0.85:
        data[chance.choice(NAMES)] = copy.deepcopy(chance.choice(ODD))
    else:
        data[key] = copy.deepcopy(chance.choice(ODD))


def test_whatever_is_changed_a_job_or_one_line_comes_of_it(home: Path, tmp_path: Path) -> None:
    chance = random.Random(20)
    (tmp_path / "train.py").write_text("print('trained')")
    file = tmp_path / "job.yaml"
    good, refusals = 0, []
    files = 200 * moments(3)
    for _ in range(files):
        file.write_text(yaml.dump(mutated(chance), Dumper=_Dumper, allow_unicode=True))
        try:
            load("job.yaml", cwd=tmp_path)
            good += 1
        except JobError as problem:
            refusals.append(str(problem))
    assert all(text.startswith("job.yaml") and "\n" not in text for text in refusals)
    assert good > files / 10
    assert len(refusals) > files / 2, "most are refused"
    assert not home.exists(), "reading creates nothing"


def test_a_refused_file_leaves_no_half_made_run(
    oarlock: Callable[..., CompletedProcess[str]], home: Path, tmp_path: Path
) -> None:
    chance = random.Random(21)
    (tmp_path / "train.py").write_text("print('trained')")
    tried = 0
    while tried < 5:
        (tmp_path / "job.yaml").write_text(yaml.dump(mutated(chance), Dumper=_Dumper))
        try:
            load("job.yaml", cwd=tmp_path)
        except JobError:
            tried += 1
            done = oarlock("run")
            assert (done.returncode, done.stdout) == (2, "")
            assert "Traceback" not in done.stderr
            assert len(done.stderr.splitlines()) == 1
    assert not home.exists()


class _Dumper(yaml.SafeDumper):
    """Without anchors: what is the same twice is written twice, as people do."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
