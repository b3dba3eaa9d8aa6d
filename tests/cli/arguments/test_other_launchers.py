"""What is typed out of habit for another launcher, and the line that says how it is typed here."""

from __future__ import annotations

import pytest

from oarlock.cli.arguments.other_launchers import command_here, option_here


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nproc_per_node", "4"], "--nproc_per_node is torchrun's: here it is -n 4 (workers)"),
        (["--nproc-per-node=gpu"], "--nproc-per-node is torchrun's: here it is -n N (workers)"),
        (
            ["--nnodes=2"],
            "--nnodes is torchrun's: here it is -n 2 --on kubernetes, one machine for each worker",
        ),
        (
            ["--gpus", "2"],
            "--gpus: here it is -n 2 --set roles.worker.gpu=1: one worker for each GPU",
        ),
        (
            ["--node_rank=0"],
            "--node_rank is torchrun's: here it is not needed: "
            "one `oarlock run` starts the tasks on all machines",
        ),
        (["--max_restarts", "5"], "--max_restarts is torchrun's: here it is --set limits.restarts=5"),
        (["--learning_rate", "5"], None),
    ],
)
def test_an_option(words: list[str], told: str | None) -> None:
    assert option_here(words[0].partition("=")[0], [*words, "train.py"]) == told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python train.py --lr 1", "python: Oarlock starts Python itself: oarlock run train.py --lr 1"),
        ("python3.12 -u train.py", "python3.12: Oarlock starts Python itself: oarlock run train.py"),
        (
            "/usr/bin/python3 -m pkg.mod a",
            "/usr/bin/python3: Oarlock starts Python itself: oarlock run -m pkg.mod a",
        ),
        (
            "torchrun --standalone --nproc_per_node=2 train.py -x",
            "torchrun: Oarlock is used instead of torchrun: oarlock run -n 2 train.py -x",
        ),
        (
            "accelerate launch --num_processes 4 train.py",
            "accelerate: Oarlock is used instead of accelerate: oarlock run -n 4 train.py",
        ),
        (
            "mpirun -np 2 python train.py",
            "mpirun: Oarlock is used instead of mpirun: oarlock run -n 2 train.py",
        ),
        ("torchrun", "torchrun: Oarlock is used instead of torchrun: oarlock run train.py"),
        ("pythonic train.py", None),
    ],
)
def test_a_command(command: str, told: str | None) -> None:
    assert command_here(command.split()) == told
