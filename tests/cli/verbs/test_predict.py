"""`oarlock predict`: a served model answers; where none is served, the command loads the model itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from oarlock.system import processes
from tests.support.commands import SCRIPT, Command
from tests.support.gangs import until_gone
from tests.support.ports import free_ports
from tests.support.served_models import ServedModels, classifier, echo, serving

PREDICT = """
import numpy as np

class Doubler:
    def predict(self, inputs):
        x = inputs["x"]
        if (x < 0).any():
            raise ValueError("x is negative")
        return {"y": 2 * x}

def load(folder):
    return Doubler()
"""
MANIFEST: dict[str, Any] = {
    "format": "python",
    "entry": "predict.py",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [None, 2]}],
}


# The second batch ends its process, once.
MORTAL = """
import os, pathlib, signal
import numpy as np

marks = pathlib.Path("MARKS")

class Mortal:
    def predict(self, inputs):
        if 4 in inputs["x"] and not (marks / "died").exists():
            (marks / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": 2 * inputs["x"]}

def load(folder):
    return Mortal()
"""
ALPHABET = """
import numpy as np

class Alphabet:
    slots, vocabulary, context = 2, 256, 64

    def encode(self, text):
        return list(text.encode()) or [10]

    def decode(self, token):
        return bytes([token])

    def start(self, slot, tokens):
        return np.eye(256, dtype=np.float32)[tokens[-1] + 1]

    def step(self, slots, positions, tokens):
        return np.eye(256, dtype=np.float32)[[token + 1 for token in tokens]]

def load(folder):
    return Alphabet()
"""


def published(folder: Path, program: str, **manifest: Any) -> Path:
    version = folder / "1"
    version.mkdir(parents=True)
    (version / "oarlock.json").write_text(json.dumps(manifest))
    (version / "predict.py").write_text(program)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return published(tmp_path / "doubler", PREDICT, **MANIFEST)


def test_a_text_model_goes_on(oarlock: Command, tmp_path: Path) -> None:
    folder = published(
        tmp_path / "alphabet",
        ALPHABET,
        format="python",
        entry="predict.py",
        kind="completion",
        inputs=[{"name": "prompt", "dtype": "string", "shape": [None]}],
        outputs=[{"name": "text", "dtype": "string", "shape": [None]}],
    )
    done = oarlock("predict", "-m", str(folder), "--max-tokens", "5", "ab", "x")
    assert (done.stdout, done.returncode) == ("ab: cdefg\nx: yz{|}\n", 0), done.stderr


def test_a_model_that_nobody_serves_is_loaded(oarlock: Command, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"[{number}, 0]\n" for number in range(5)))
    done = oarlock("predict", "-m", str(model), "--batch", "2", "--json", str(rows))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["input"] for one in answers] == [f"{rows}:{number}" for number in range(1, 6)]
    assert [next(iter(one["outputs"].values())) for one in answers] == [[2 * n, 0] for n in range(5)]
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == "", "the server of its own has ended"


def test_a_program_that_waits_for_each_answer_gets_it_and_ctrl_c_ends_it_quietly(model: Path) -> None:
    words = [str(SCRIPT), "predict", "-m", str(model), "-n", "2", "--batch", "1", "--json"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as client:  # type: ignore[call-overload]
        for number in range(5):
            client.stdin.write(f"[{number}, 0]\n")
            client.stdin.flush()
            [[twice, _]] = json.loads(client.stdout.readline())["outputs"].values()
            assert twice == 2 * number
        client.send_signal(signal.SIGINT)  # while it waits for a line that never comes
        assert client.wait(120) == 130
        assert "Fatal" not in client.stderr.read()


def test_a_client_that_is_killed_leaves_neither_server_nor_folder(model: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    words = [str(SCRIPT), "predict", "-m", str(model), "-n", "2", "--batch", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    with subprocess.Popen(words, text=True, env=env, **pipes) as client:  # type: ignore[call-overload]
        client.stdin.write("[1, 0]\n")
        client.stdin.flush()
        assert client.stdout.readline()
        servers = processes.descendants(client.pid)
        assert len(servers) == 3  # with a replica for each worker
        client.kill()
    until_gone(servers)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_answers_are_written_whole_or_not_at_all(oarlock: Command, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = oarlock("predict", "-m", str(model), "-o", str(out), "[1, 2]", "[-1, 0]", "--batch", "1")
    assert done.returncode == 1
    assert "x is negative" in done.stderr
    assert not out.exists()
    done = oarlock("predict", "-m", str(model), "-o", str(out), "[1, 2]", "[3, 4]")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(out.read_text().splitlines()) == 2


def test_several_processes_share_the_examples_and_one_that_dies_costs_no_answer(
    oarlock: Command, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    model = published(tmp_path / "mortal", MORTAL.replace("MARKS", str(marks)), **MANIFEST)
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text("".join(f"[{number}, 0]\n" for number in range(40)))
    done = oarlock("predict", "-m", str(model), "-n", "2", "--batch", "3", "-o", str(out), str(rows))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["input"] for one in answers] == [f"{rows}:{number}" for number in range(1, 41)]
    assert [next(iter(one["outputs"].values())) for one in answers] == [[2 * n, 0] for n in range(40)]
    assert (marks / "died").exists()


def test_an_output_that_cannot_be_written_is_said(oarlock: Command, model: Path, tmp_path: Path) -> None:
    done = oarlock("predict", "-m", str(model), "-o", str(tmp_path / "no" / "out.jsonl"), "[1, 2]")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "cannot be written: No such file or directory" in done.stderr


def test_a_served_model_is_not_loaded_again(oarlock: Command) -> None:
    for words in (["--on", "kubernetes"], ["-n", "2"]):
        done = oarlock("predict", "-m", "http://127.0.0.1:1", *words, "x")
        assert (done.returncode, "is served already" in done.stderr) == (2, True), done.stderr


def test_another_folder_is_loaded_beside_a_running_server(
    oarlock: Command, model: Path, tmp_path: Path
) -> None:
    served = oarlock("serve", "-d", str(model), "--name", "busy", "--port", str(free_ports(1)[0]))
    assert served.returncode == 0, served.stderr
    tripled = published(tmp_path / "tripled", PREDICT.replace("2 * x", "3 * x"), **MANIFEST)
    done = oarlock("predict", "-m", str(tripled), "[1, 2]")
    assert done.stdout.strip() == "[1, 2]: [3.0, 6.0]", done.stderr
    done = oarlock("predict", "-m", ".", "[1, 2]")
    assert (done.returncode, "holds no model" in done.stderr) == (2, True), done.stderr
    assert oarlock("stop", "busy").returncode == 0


def test_a_version_can_be_named(oarlock: Command, model: Path) -> None:
    version = model / "2"
    version.mkdir()
    (version / "oarlock.json").write_text(json.dumps(MANIFEST))
    (version / "predict.py").write_text(PREDICT.replace("2 * x", "3 * x"))
    for words, factor in (([], 3), (["--version", "1"], 2)):
        done = oarlock("predict", "-m", str(model), *words, "[1, 2]")
        assert done.stdout.strip() == f"[1, 2]: [{factor}.0, {2 * factor}.0]", done.stderr


def test_classes_are_named_by_their_labels(oarlock: Command) -> None:
    with serving(ServedModels([classifier()])) as port:
        done = oarlock("predict", "-m", f"http://127.0.0.1:{port}", json.dumps([[1.0] * 3] * 4))
    assert done.returncode == 0, done.stderr
    named = done.stdout.strip().rpartition(": ")[2]
    assert sorted(part.split()[0] for part in named.split(", ")) == ["cat", "dog", "owl"]


def test_text_goes_in_and_comes_out(oarlock: Command) -> None:
    with serving(ServedModels([echo("string", (None,))])) as port:
        done = oarlock("predict", "-m", f"http://127.0.0.1:{port}/v1/models/m", "it crashes\x1b[31m")
        piped = subprocess.run(
            [SCRIPT, "predict", "-m", f"http://127.0.0.1:{port}"],
            input="one\ntwo\n",
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
    assert done.stdout.endswith(": it crashes\\x1b[31m\n"), done.stderr
    assert piped.stdout.splitlines() == ["standard input:1: one", "standard input:2: two"], piped.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-m", "http://127.0.0.1:1", "x"], "http://127.0.0.1:1 does not answer"),
        (["-m", "no-such-run", "x"], "no-such-run"),
        (["-m", ".", "x"], "holds no model"),
        (["x"], "no run has a model yet"),
    ],
)
def test_a_model_that_is_not_there_is_said(oarlock: Command, words: list[str], sentence: str) -> None:
    done = oarlock("predict", *words)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_shape_gets_the_servers_sentence(oarlock: Command) -> None:
    with serving(ServedModels([classifier()])) as port:
        done = oarlock("predict", "-m", f"http://127.0.0.1:{port}", "[1, 2]")
    assert done.returncode == 1
    assert "image" in done.stderr
    assert "Traceback" not in done.stderr
