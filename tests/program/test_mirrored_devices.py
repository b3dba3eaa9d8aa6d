from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.shared import specs
from oarlock.errors import JobError
from oarlock.job.model import parse

MIRRORED = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


def resolve(folder: Path, program: str = MIRRORED, **roles: Any) -> None:
    (folder / "train.py").write_text(program)
    specs.resolve(parse({"program": "train.py", "roles": roles}), folder, "run")


def test_unequal_gpus_are_refused_under_the_mirrored_strategy_of_tensorflow(tmp_path: Path) -> None:
    with pytest.raises(JobError) as refused:
        resolve(tmp_path, worker=[{"gpu": 8}, {"gpu": 1}])
    assert str(refused.value) == (
        "roles: the program names MultiWorkerMirroredStrategy, which TensorFlow defines only for equal "
        "numbers of GPUs, and its tasks have 8 and 1; give every chief and worker as many, "
        "or a process for each GPU (processes)"
    )
    with pytest.raises(JobError, match="have 1 and 0"):
        resolve(tmp_path, chief=1, worker={"gpu": 1})


@pytest.mark.parametrize(
    ("program", "roles"),
    [
        ("import torch", {"worker": [{"gpu": 8}, {"gpu": 1}]}),
        (MIRRORED, {"worker": [{"gpu": 8, "processes": 8}, {"gpu": 1}]}),
        (MIRRORED, {"worker": [{"gpu": 2}, {"gpu": 1}], "ps": 1}),
        (MIRRORED, {"chief": 1, "worker": 2}),
    ],
)
def test_other_programs_and_equal_gpus_are_not(tmp_path: Path, program: str, roles: Any) -> None:
    resolve(tmp_path, program, **roles)
