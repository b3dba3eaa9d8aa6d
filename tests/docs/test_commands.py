"""Every shell command of every page is run, in the page's order, or is listed here with the reason why not.

The programs are stand-ins that train for a moment. Those for the examples take the examples' own arguments;
tests/examples has what the real ones learn.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.pages import PAGES, ROOT, Command

# Pages whose commands another test runs, all of them.
ELSEWHERE = {
    "docs/kubernetes.md": "tests/kubernetes/test_docs.py",
    "docs/snapshots.md": "tests/agent/snapshots/test_snapshots.py",
}
# Commands that are not run here, and why.
NOT_RUN = {
    "make demo": "installs for a minute, then runs examples/mnist_keras: tests/examples/test_mnist.py",
    "make test": "this is part of it",
    "make install": "it has been run: the tests are running",
    "make check": "a part of make test",
    "make docs": "test_pages.py builds the site in the same way",
    "make bench": "takes an hour",
    "make soak": "takes hours",
    "make constraints": "asks the package index; test_requirements.py checks the result",
    "pip install .": "tests/test_wheel.py installs it into an environment of its own",
    "oarlock doctor": "imports every framework; tests/cli/verbs/test_doctor.py",
    "oarlock tensorboard": "runs until Ctrl-C; tests/cli/verbs/test_tensorboard.py",
    "oarlock tensorboard mnist-abcd mnist-efgh": "likewise",
    "oarlock tensorboard --deploy mnist-abcd": "needs a cluster; tests/kubernetes/test_tensorboard.py",
    "oarlock run --from mnist-abcd train.py": "needs weights; tests/frameworks/test_initial_weights.py",
    "oarlock chaos": "asks on a terminal; tests/cli/verbs/test_chaos.py",
    "oarlock exec --task worker-1 -- nvidia-smi": "needs a GPU; tests/cli/verbs/test_exec.py",
    "oarlock run --on kubernetes -n 4 --set roles.worker.gpu=8 --set roles.worker.processes=8 train.py": (
        "needs GPUs on a cluster"
    ),
    "oarlock run --on kubernetes examples/mnist_keras": "a command of docs/kubernetes.md, run there",
    "oarlock serve --on kubernetes mnist-keras-abcd": "needs a cluster; tests/kubernetes/test_serve.py",
    "oarlock status mnist-keras-serve": "likewise",
    "oarlock logs -f mnist-keras-serve": "likewise",
    "oarlock scale mnist-keras-serve 3": "likewise",
    "oarlock stop mnist-keras-serve": "likewise",
    "oarlock delete --force mnist-keras-serve": "likewise",
    "oarlock pull mnist-keras-abcd": "a command of docs/kubernetes.md, run there",
    "oarlock evaluate mnist-abcd@1000": "needs that step; tests/cli/verbs/test_evaluate.py",
    "oarlock evaluate mnist-abcd --on kubernetes": "needs a cluster; tests/kubernetes/test_evaluation.py",
    "oarlock evaluate --on kubernetes digits-abcd --all": "likewise",
    "oarlock ingest": "the commands after it mean a run that trained; tests/cli/verbs/test_ingest.py",
    "oarlock ingest --on kubernetes": "needs a cluster; tests/kubernetes/test_ingest.py",
    "oarlock plan -n 8 train.py": "asks a cluster; tests/kubernetes/test_plan.py",
    "oarlock render -n 8 train.py | kubectl apply -f -": "needs a cluster; tests/kubernetes/test_render.py",
    "oarlock evaluate image-classifier-abcd@1800": "of a real run; tests/cli/verbs/test_evaluate.py",
    "oarlock evaluate issue-summarizer-abcd": "likewise",
    "oarlock evaluate transformer-abcd": "likewise",
    # Of a real model; tests/cli/verbs/test_predict.py asks one in each of these ways.
    "oarlock predict digit.png": "needs a model",
    'oarlock predict "não foi possível abrir o arquivo"': "needs a model",
    "oarlock predict -m mnist-abcd rows.jsonl -o answers.jsonl": "needs a model",
    "oarlock predict -m mnist-abcd -n 4 --on kubernetes -o answers.jsonl pictures": "needs a model",
    "oarlock predict -m mnist-keras-abcd -o answers.jsonl -n 2 digits": "needs a model",
    "oarlock predict -m mnist-keras-abcd -o answers.jsonl -n 4 --on kubernetes rows.jsonl": "needs a model",
    'echo "it crashes when I save" | oarlock predict -m http://127.0.0.1:8000': "needs a server",
    # Servers run until Ctrl-C; tests/cli/verbs/test_serve.py starts each kind of them.
    "oarlock serve": "runs until Ctrl-C",
    "oarlock serve mnist-abcd": "runs until Ctrl-C",
    "oarlock serve ./model": "runs until Ctrl-C",
    "oarlock serve s3://bucket/models/mnist": "needs a bucket; tests/serving/fleet/test_bucket_mirror.py",
    "oarlock run --serve examples/mnist_keras": "runs until Ctrl-C",
    "oarlock serve -d --replicas 2 mnist-abcd": "needs a model; tests/cli/verbs/test_serve.py",
    "oarlock serve --ab 1=90,2=10 ./model": "runs until Ctrl-C; tests/serving/server/test_supervisor.py",
    "oarlock scale mnist-serve-abcd 4": "needs a server; tests/cli/verbs/test_serve.py",
    "oarlock run --on kubernetes examples/image_classifier": "needs a cluster, and six cores of it",
    "oarlock evaluate --on kubernetes image-classifier-abcd --all": "tests/kubernetes/test_evaluation.py",
    "curl -s http://127.0.0.1:8000/v1/completions -d '"
    '{"prompt": "Return the ", "max_tokens": 80, "temperature": 0.5, "seed": 1}\'': "asks that server",
    # Recipes: test_from_the_recipes.py parses these and renders each job file.
    "oarlock run --on kubernetes": "needs a cluster, as in docs/kubernetes.md",
    "oarlock run -d --on kubernetes": "needs a cluster, as in docs/kubernetes.md",
    "oarlock pull mnist-abcd": "needs a cluster, as in docs/kubernetes.md",
    "oarlock delete --volumes mnist-abcd": "needs a cluster, as in docs/kubernetes.md",
    "oarlock render --ps 8 -n 16": "needs the job file above it; test_from_the_recipes.py renders that",
    "oarlock delete image-classifier-abcd": "needs a cluster, as in docs/kubernetes.md",
    "kubectl create secret generic gcp-key --from-file=key.json": "needs a cluster and a key",
    "oarlock logs -f": "of a run on a cluster, as in docs/kubernetes.md",
    "oarlock plan": "needs a cluster, as in docs/kubernetes.md",
    "oarlock delete issues-abcd": "needs a cluster, as in docs/kubernetes.md",
}
# What takes too long as it stands, and what is run instead.
SHORTER = {
    "--faults 20 --every 30s": "--faults 2 --every 0.2s",
    "--every 10s": "--every 0.2s",
    "--every 3s": "--every 0.2s",
    "chaos --faults 5 --yes": "chaos --faults 2 --every 0.2s --yes",
}

TRAIN = """
import time
import oarlock
state = oarlock.State(sum=0)
if oarlock.current().role == "evaluator":
    for step in state.follow():
        state.report(accuracy=1.0)
else:
    for step in state.steps(STEPS, save=100, keep=10):
        state.report(loss=1.0)
        time.sleep(SECONDS)
"""
QUICK = TRAIN.replace("STEPS", "20").replace("SECONDS", "0")
LONG = TRAIN.replace("STEPS", "10**6").replace("SECONDS", "0.01")
ARGUMENTS = "import sys\nassert sys.argv[1:] in ([], ['--epochs', '3']), sys.argv\n"
WEIGHTS = """
if getattr(args, "weights", None):
    import numpy
    numpy.savez(args.weights, weights=numpy.ones(3))
"""


class Reader:
    """Does what a page says, in a folder with stand-ins for the programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "train.py").write_text(ARGUMENTS + QUICK)
        (folder / "prepare.py").touch()
        (folder / "job.yaml").write_text(
            "name: mnist\nprogram: train.py\nroles: {worker: 2}\ningest: prepare.py\n"
        )
        for example in (ROOT / "examples").iterdir():
            target = folder / "examples" / example.name
            target.mkdir(parents=True)
            for job in example.glob("*.yaml"):
                shutil.copy(job, target)
            (target / "train.py").write_text(stand_in(example / "train.py", QUICK))
            for stage in ("ingest.py", "evaluate.py"):
                if (example / stage).exists():
                    (target / stage).write_text(stand_in(example / stage))

    def do(self, line: str) -> None:
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"

    def start(self, name: str, *, program: str = LONG, workers: int = 1) -> None:
        (self.folder / f"{name}.py").write_text(program)
        self.do(f"oarlock run -d -n {workers} --name {name} {name}.py")


def stand_in(program: Path, does: str = "") -> str:
    """A program with the real one's arguments that does nothing else, or trains for a moment."""
    source = program.read_text()
    wanted = {"arguments", "how_often"}
    kept = [
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if (isinstance(node, ast.FunctionDef) and node.name in wanted)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    ]
    return "\n\n".join(
        ["import argparse\nimport oarlock", *filter(None, kept), "args = arguments()", does, WEIGHTS]
    )


def _have_a_stopped_run(reader: Reader) -> None:
    """`mnist-abcd`, with checkpoints of the steps 100 and 200 among others."""
    stops = QUICK.replace(
        "state.report", "assert step < 250 or oarlock.current().generation > 1; state.report"
    )
    (reader.folder / "mnist.py").write_text(stops.replace("steps(20", "steps(300"))
    reader.do("oarlock run --set limits.restarts=0 --name mnist-abcd mnist.py || test $? = 1")


def _have_a_lasting_run(reader: Reader) -> None:
    """The page's own is a stand-in that may have ended by now."""
    reader.start("lasting")


def _have_it_running(reader: Reader) -> None:
    """`mnist-abcd` again, under way."""
    reader.do("oarlock delete mnist-abcd")
    reader.start("mnist-abcd")


# What has to be there before a command of a page.
BEFORE: dict[tuple[str, str], Callable[[Reader], None]] = {
    ("README.md", "oarlock chaos --faults 5 --yes"): _have_a_lasting_run,
    ("docs/fault-tolerance.md", "oarlock chaos --faults 5 --every 10s --yes"): _have_a_lasting_run,
    ("examples/mnist_keras/README.md", "oarlock chaos --faults 2 --every 3s --yes"): _have_a_lasting_run,
    ("docs/cli.md", "oarlock run --resume mnist-abcd"): _have_a_stopped_run,
    ("docs/cli.md", "oarlock checkpoints ./checkpoints"): lambda reader: reader.do("python train.py"),
    (
        "docs/cli.md",
        "oarlock chaos mnist-abcd --faults 20 --every 30s --kinds kill,preempt --seed 7 --yes",
    ): _have_it_running,
    ("docs/troubleshooting.md", "oarlock status"): lambda reader: reader.start("broken", program="1 / 0"),
    ("docs/troubleshooting.md", "oarlock logs --first-error"): lambda reader: reader.do(
        "oarlock attach || test $? = 1"
    ),
}


def to_run(page: str) -> list[Command]:
    return [command for command in pages.commands(page) if command.line not in NOT_RUN]


RUN_HERE = [page for page in PAGES if page not in ELSEWHERE and to_run(page)]


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_commands_of_a_page_work_in_its_order(page: str, home: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for command in to_run(page):
        prepare = BEFORE.get((page, command.line))
        if prepare is not None:
            prepare(reader)
        reader.do(command.line)


def test_pages_have_commands() -> None:
    assert {"README.md", "docs/cli.md", "examples/mnist_keras/README.md"} <= set(RUN_HERE)
    assert sum(len(to_run(page)) for page in RUN_HERE) > 30


@pytest.mark.parametrize("page", ELSEWHERE)
def test_what_is_run_elsewhere_is(page: str) -> None:
    assert list(pages.commands(page))
    assert Path(page).name in (ROOT / ELSEWHERE[page]).read_text()


def test_no_exception_is_left_over() -> None:
    written = {command.line for page in PAGES for command in pages.commands(page)}
    assert NOT_RUN.keys() <= written
    assert {line for _, line in BEFORE} <= written
    for short in SHORTER:
        assert any(short in line for line in written)
