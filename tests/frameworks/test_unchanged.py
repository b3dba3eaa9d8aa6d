"""Programs written for other launchers run unchanged under `oarlock run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.soaking import cases

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    ("program", "words", "said"),
    cases(
        [
            ("torch_ddp.py", "-n 2", ["rank 0 of 2: loss", "rank 1 of 2: loss"]),
            (
                "cluster_config.py",
                "-n 2 --ps 1",
                ["worker 0 of 2 got variables", "worker 1 of 2 got variables"],
            ),
        ],
        soak=[  # the tests below have these two in another way
            ("jax_distributed.py", "-n 2", ["rank 0 of 2: sum 3", "rank 1 of 2: sum 3"]),
            ("tf_config.py", "-n 2", ["worker 0 of 2: loss", "worker 1 of 2: loss"]),
        ],
    ),
)
def test_a_program_for_another_launcher(
    oarlock: Callable[..., CompletedProcess[str]], program: str, words: str, said: list[str]
) -> None:
    done = oarlock("run", *words.split(), str(PROGRAMS / program))
    assert done.returncode == 0, done.stdout + done.stderr
    for line in said:
        assert line in done.stdout


def test_jax_and_torch_programs_run_unchanged_when_spawned_cold(
    oarlock: Callable[..., CompletedProcess[str]],
) -> None:
    """Here nothing was imported before the program: the corrections wait for its own imports."""
    done = oarlock("run", "-n", "2", "--cold", str(PROGRAMS / "jax_distributed.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1 of 2: sum 3" in done.stdout


def test_the_tutorial_of_tensorflow_ends_without_destroying_its_iterator(
    oarlock: Callable[..., CompletedProcess[str]],
) -> None:
    """Destroying it takes up to 20 s, in which others leave: "The tasks have crashed", says TensorFlow."""
    done = oarlock("run", "-n", "2", str(PROGRAMS / "keras_tutorial.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker-0", "worker-1"):
        said = [line for line in done.stdout.splitlines() if line.startswith(worker)]
        assert f"{worker} | an iterator was made" in said
        last = said.index(f"{worker} | Epoch 3/3")
        assert f"{worker} | an iterator was destroyed" not in said[last:]
    assert "The tasks have crashed" not in done.stdout
