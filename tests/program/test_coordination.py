"""Parameter servers without a chief are refused for programs that would wait for one forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.engines.shared import specs
from oarlock.job.model import FieldError, parse
from tests.support.small_programs import write

PS_WITHOUT_CHIEF = {"worker": 2, "ps": 1}


@pytest.mark.parametrize(
    "program",
    [
        "import tensorflow as tf\nstrategy = tf.distribute.ParameterServerStrategy(None)",
        "import tensorflow as tf\nstrategy = tf.distribute.experimental.ParameterServerStrategy(None)",
        "from tensorflow.distribute import ParameterServerStrategy",
        "import helper",  # which uses it
    ],
)
def test_a_strategy_that_needs_a_chief_is_refused_without_one(tmp_path: Path, program: str) -> None:
    write(tmp_path / "train.py", program)
    write(tmp_path / "helper.py", "from tensorflow.distribute import ParameterServerStrategy")
    job = parse({"program": "train.py", "roles": PS_WITHOUT_CHIEF})
    with pytest.raises(FieldError, match=r"^roles.ps: .*wait forever: add --chief, or roles.chief: 1"):
        specs.resolve(job, tmp_path, "run-aaaa")
    with_chief = parse({"program": "train.py", "roles": {**PS_WITHOUT_CHIEF, "chief": 1}})
    assert specs.resolve(with_chief, tmp_path, "run-aaaa").sizes["chief"] == 1
    without_servers = parse({"program": "train.py", "roles": {"worker": 2}})
    assert specs.resolve(without_servers, tmp_path, "run-aaaa").sizes == {"worker": 2}


@pytest.mark.parametrize(
    "program",
    [
        "import tensorflow as tf\nserver = tf.compat.v1.train.Server({})",
        "import tensorflow.compat.v1 as tf\ntf.distribute.experimental.ParameterServerStrategy()",
        "# ParameterServerStrategy\n'ParameterServerStrategy'",
    ],
)
def test_a_program_in_which_worker_0_leads_needs_no_chief(tmp_path: Path, program: str) -> None:
    write(tmp_path / "train.py", program)
    for way in ({"program": "train.py"}, {"command": "python train.py"}):
        assert specs.resolve(parse({**way, "roles": PS_WITHOUT_CHIEF}), tmp_path, "run-aaaa")
