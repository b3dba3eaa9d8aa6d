"""`oarlock tensorboard` of a local run: a process on this machine, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.shared import tensorboard_process
from tests.support.commands import SCRIPT, started
from tests.support.event_files import event_file, tags_at
from tests.support.ports import free_ports
from tests.support.small_programs import write
from tests.support.waiting import eventually

# The command line itself, where nothing called tensorboard can be imported.
WITHOUT_IT = """
import sys
sys.modules["tensorboard"] = None
from oarlock.cli import main
main()
"""


@pytest.fixture
def run(oarlock: Any, tmp_path: Path) -> Path:
    """A finished run that has written a scalar; its LOG_DIR."""
    (tmp_path / "written").write_bytes(event_file("scalar-loss"))
    program = """
        import os, shutil
        shutil.copy("written", os.path.join(os.environ["LOG_DIR"], "events.out.tfevents.1.host"))
    """
    write(tmp_path / "train.py", program)
    done = oarlock("run", "--name", "logged", "train.py")
    assert done.returncode == 0, done.stderr
    return tmp_path / "home" / "runs" / "logged" / "tensorboard"


@pytest.mark.usefixtures("run")
def test_it_answers_until_it_is_interrupted() -> None:
    with started(SCRIPT, "tensorboard", "--json") as client:
        assert client.stdout is not None
        url = json.loads(client.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        # It answers before it has read the logs.
        assert eventually(lambda: tags_at(url), "tags") == {"scalar-loss"}
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    assert not tensorboard_process.answers(int(url.rpartition(":")[2].rstrip("/")))


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
        assert client.wait(60) == 143
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
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.endswith("pip install tensorboard\n")


@pytest.mark.usefixtures("run")
def test_an_image_is_for_a_cluster(oarlock: Any) -> None:
    done = oarlock("tensorboard", "--image", "tensorflow/tensorflow")
    assert done.returncode == 2
    assert "--image is for a run on a cluster" in done.stderr
