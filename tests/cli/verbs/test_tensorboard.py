"""`oarlock tensorboard` of a local run: a process on this machine, until Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.shared import tensorboard_process
from oarlock.records import late_scores, runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import SCRIPT, started
from tests.support.event_files import curve_at, event_file, runs_at
from tests.support.ports import free_ports
from tests.support.small_programs import write
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

# The command line itself, where nothing called tensorboard can be imported.
WITHOUT_IT = """
import sys
sys.modules["tensorboard"] = None
from oarlock.cli import main
main()
"""


PROGRAM = """
    import os, shutil
    import numpy
    import oarlock

    context = oarlock.current()
    shutil.copy("written", os.path.join(os.environ["LOG_DIR"], "events.out.tfevents.1.host"))
    if context.role == "evaluator":
        context.report(step=2, accuracy=0.5)
    else:
        state = oarlock.State(weights=numpy.zeros(3))
        for step in state.steps(4, save=2):
            state.report(loss=8.0 / (step + 1), examples_per_second=64.0)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of one finished run, which has reported and written a scalar itself."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "written").write_bytes(event_file("scalar-loss"))
    write(folder / "train.py", PROGRAM)
    words = [str(SCRIPT), "run", "--name", "logged", "-n", "1", "--evaluator", "train.py"]
    env = {**os.environ, "OARLOCK_HOME": str(folder / "home")}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All tests look at that run."""
    monkeypatch.setenv("OARLOCK_HOME", str(place / "home"))
    return place / "home"


@pytest.fixture
def run(home: Path) -> RunFolder:
    return runs.find("logged")


def _copied(run: RunFolder, name: str) -> None:
    """Make the record of a run of an earlier version: with events, and no files for TensorBoard."""
    shutil.copytree(run.path, run.path.with_name(name))
    copy = runs.find(name)
    copy.spec_file.write_text(copy.spec_file.read_text().replace(f"/{run.name}/", f"/{name}/"))
    shutil.rmtree(copy.path / "tensorboard")


def test_several_runs_are_shown_until_it_is_interrupted(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a program's folder, whose modules are not imported: a program may have a `logging.py`."""
    for name in ("logging", "tensorboard", "runpy"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the wrong {name}')")
    monkeypatch.chdir(tmp_path)
    _copied(run, "earlier")
    scores = [{"task": "evaluator-0", "step": step, "accuracy": step / 8} for step in (4, 2)]
    late_scores.add(run.scores_file, [{"t": 1.0, "kind": "report", **score} for score in scores])
    with started(SCRIPT, "tensorboard", "--json", run.name, "earlier") as client:
        assert client.stdout is not None
        url = json.loads(client.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")

        # It answers before it has read the logs.
        def has_all() -> bool:
            return curve_at(url, "earlier/evaluation", "accuracy") != [] and len(runs_at(url)) == 6

        eventually(has_all, "curves of both runs")
        shown = runs_at(url)
        assert shown["logged"] == {"scalar-loss"}
        assert curve_at(url, "logged.evaluate", "accuracy") == [(2, 0.25), (4, 0.5)]
        for name in ("logged", "earlier"):
            rates = {"oarlock/goodput", "oarlock/steps_per_second"}
            assert shown[f"{name}/training"] - rates == {"loss", "examples_per_second"}
            assert "oarlock/goodput" in shown[f"{name}/training"]
            assert curve_at(url, f"{name}/training", "loss")[-1] == (4, 2.0)
            assert curve_at(url, f"{name}/evaluation", "accuracy") == [(2, 0.5)]
        client.send_signal(signal.SIGINT)
        assert client.wait(300) == 0
    runs.find("earlier").remove()
    assert not tensorboard_process.answers(int(url.rpartition(":")[2].rstrip("/")))


@only_in_soak
@pytest.mark.usefixtures("run")
def test_a_port_can_be_asked_for_and_may_be_taken(oarlock: Any) -> None:
    port = str(free_ports(1)[0])
    with socket.create_server(("127.0.0.1", int(port))):
        done = oarlock("tensorboard", "--port", port)
        assert done.returncode == 1
        assert done.stderr == f"oarlock: port {port} of this machine is in use: choose another --port\n"
    with started(SCRIPT, "tensorboard", "logged", "--port", port) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == f"logged: http://127.0.0.1:{port}/   Ctrl-C ends it\n"
        client.send_signal(signal.SIGTERM)
        assert client.wait(300) == 143
    assert not tensorboard_process.answers(int(port))


@pytest.mark.usefixtures("run")
def test_one_that_cannot_start_says_why(oarlock: Any, tmp_path: Path) -> None:
    package = tmp_path / "broken" / "tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text("raise SystemExit('no such plugin')")
    env = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = oarlock("tensorboard", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "oarlock: TensorBoard has ended (exit code 1): no such plugin\n"


@pytest.mark.usefixtures("run")
def test_where_it_is_missing_one_line_says_what_to_do() -> None:
    words = [sys.executable, "-c", WITHOUT_IT, "tensorboard"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.endswith("pip install tensorboard\n")


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--deploy"], "logged ran on this machine; --deploy is for a run on a cluster"),
        (["--deploy", "--delete"], "give one of them"),
        (["--ingress", "b.example"], "--ingress is for --deploy"),
        (["--deploy", "--port", "6006"], "--port is for a TensorBoard on this machine"),
    ],
)
def test_one_that_stands_is_for_a_cluster(oarlock: Any, words: list[str], why: str) -> None:
    done = oarlock("tensorboard", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


@pytest.mark.usefixtures("run")
def test_an_image_is_for_a_cluster(oarlock: Any) -> None:
    done = oarlock("tensorboard", "--image", "tensorflow/tensorflow")
    assert done.returncode == 2
    assert "--image is for a run on a cluster" in done.stderr
