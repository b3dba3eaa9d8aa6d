"""`oarlock serve`: a model of a run, a folder or a job, on this machine."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from oarlock.records import runs
from tests.support.commands import SCRIPT, Command, started
from tests.support.model_servers import BROKEN, publish
from tests.support.ports import free_ports
from tests.support.small_programs import write
from tests.support.waiting import eventually

TRAIN = """
    import json, oarlock, pathlib
    me = oarlock.current()
    for step in range(1, 4):
        me.report(step, total=3, accuracy=0.3 * step)
    folder = me.model / "1"
    folder.mkdir(parents=True)
    for name in ("model.py", "oarlock.json"):
        (folder / name).write_text((pathlib.Path("made/1") / name).read_text())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "sums"
    publish(models, 1)
    return models


@pytest.fixture
def job(tmp_path: Path) -> Path:
    publish(tmp_path / "made", 1)
    write(tmp_path / "train.py", TRAIN)
    write(tmp_path / "job.yaml", "name: summing\nprogram: train.py\nserve: {when: accuracy >= 0.85}\n")
    return tmp_path


def serve(oarlock: Command, *words: str) -> dict[str, Any]:
    """Serve detached on a port of ours; what the first line of JSON says."""
    done = oarlock("serve", "-d", "--json", "--port", str(free_ports(1)[0]), *words, timeout=300)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert told["kind"] == "serving"
    return told


def ask(told: dict[str, Any], a: float, b: float) -> float:
    body = json.dumps({"inputs": {"x": [[a, b]]}}).encode()
    with urllib.request.urlopen(
        f"{told['url']}/v1/models/{told['name']}:predict", body, timeout=120
    ) as answer:
        value: float = json.load(answer)["outputs"]["y"][0]
    return value


def children(run: str) -> list[psutil.Process]:
    agent = runs.find(run).state().agent
    return list(psutil.Process(agent).children(recursive=True))


def test_a_folder_is_a_run_like_any_other_and_leaves_nothing(oarlock: Command, folder: Path) -> None:
    told = serve(oarlock, str(folder))
    assert ask(told, 1, 2) == 3
    assert told["name"] == "sums"
    assert told["run"].startswith("sums-serve-")
    assert told["run"] in oarlock("ps").stdout

    def shown() -> bool:
        return "sums, version 1 (model.py), 1 replica\n  1 request" in oarlock("status").stdout

    eventually(shown, "the request in the status", evidence=lambda: oarlock("status").stdout)
    assert told["url"] in oarlock("logs").stdout
    processes = children(told["run"])
    assert oarlock("stop").returncode == 0
    eventually(lambda: not any(one.is_running() for one in processes), "end of all processes")
    with pytest.raises(OSError, match="refused"):
        ask(told, 1, 2)
    assert oarlock("delete", told["run"]).returncode == 0
    assert not runs.all_runs()
    assert sorted(path.name for path in folder.iterdir()) == ["1"]


def test_the_printed_curl_line_answers(oarlock: Command, folder: Path) -> None:
    told = serve(oarlock, str(folder))
    words = shlex.split(told["curl"])
    assert words[0] == "curl"
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout)["outputs"]["y"] == [0.0], done


def test_the_newest_run_with_a_model_is_served(oarlock: Command, job: Path) -> None:
    assert oarlock("run", "--name", "first").returncode == 0
    write(job / "other.py", "print('no model')")
    assert oarlock("run", "--name", "without", "other.py").returncode == 0
    told = serve(oarlock)
    assert told["name"] == "summing"
    assert told["run"].startswith("summing-serve-")
    assert ask(told, 2, 2) == 4
    assert serve(oarlock, "first")["name"] == "summing"
    assert serve(oarlock, str(job))["name"] == "summing"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no run has a model yet"),
        (["nothing"], "there is no run called nothing"),
        (["no/such/folder"], "no/such/folder: no such folder"),
        (["ftp://place/model"], "expected s3://, gs://, az://, a folder or a run"),
        (["."], "holds no model"),
        (["sums", "--ab", "1=x"], "expected versions and shares such as 1=90,2=10"),
        (["sums", "--version", "latest"], "it is newest, best or a number"),
        (["sums", "--token-file", "none"], "--token-file none: no such file"),
        (["sums", "--tls-cert", "sums/1/model.py"], "--tls-cert and --tls-key belong together"),
        (
            ["sums", "--tls-cert", "sums/1/model.py", "--tls-key", "sums/1/model.py"],
            "sums/1/model.py is not a certificate in PEM form",
        ),
        (["sums", "--replicas", "0"], "--replicas 0"),
        (["sums", "--replicas", "1..3"], "a fixed number here, found 1..3"),
        (["sums", "--set", "serve.when=good"], "a score and a bound such as accuracy >= 0.95"),
        (["sums", "--model-name", "a/b"], "make a name"),
        (["sums", "--ingress", "a.example"], "--ingress is for --on kubernetes, not for --on local"),
        (["sums", "--host", "192.0.2.1"], "192.0.2.1 is not an address of this machine"),
    ],
)
def test_a_mistake_is_one_sentence_and_creates_nothing(
    words: list[str], said: str, oarlock: Command, folder: Path
) -> None:
    done = oarlock("serve", *words)
    assert done.returncode in (1, 2), done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not runs.all_runs()


def test_a_port_that_is_taken_is_said_and_the_usual_one_replaced(oarlock: Command, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = oarlock("serve", "sums", "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    with _usual_port_taken():
        done = oarlock("serve", "-d", "--json", "sums", timeout=300)
        assert "port 8000 is in use; this server gets port" in done.stderr
        assert ask(json.loads(done.stdout.splitlines()[0]), 1, 2) == 3


def test_a_model_that_does_not_load_fails_the_run_with_the_reason(oarlock: Command, tmp_path: Path) -> None:
    publish(tmp_path / "bad", 1, program=BROKEN)
    done = oarlock("serve", "-d", "bad", "--port", str(free_ports(1)[0]), timeout=300)
    assert done.returncode == 1, done.stdout
    assert "the weights are missing" in done.stderr
    assert "Traceback" not in done.stderr
    assert runs.find(None).state().state == "failed"


def test_ctrl_c_stops_a_server_that_is_attached(home: Path, folder: Path) -> None:
    with started(SCRIPT, "serve", str(folder), "--name", "here", "--port", str(free_ports(1)[0])) as client:
        assert client.stdout is not None
        lines: list[str] = []
        for line in client.stdout:
            lines.append(line)
            if "try: curl" in line:
                break
        assert any("serving sums, version 1" in line for line in lines), lines
        client.send_signal(signal.SIGINT)
        assert client.wait(120) == 130
    assert runs.find("here").state().state == "stopped"


def test_replicas_are_scaled(oarlock: Command, folder: Path) -> None:
    told = serve(oarlock, str(folder))
    done = oarlock("scale", "2", timeout=300)
    assert (done.returncode, "answers with 2 replicas" in done.stdout) == (0, True), done.stderr
    state = json.loads(oarlock("status", "--json").stdout)
    assert state["tasks"][0]["metrics"]["replicas"] == 2
    assert ask(told, 1, 2) == 3
    assert oarlock("scale", "0").returncode == 2


def test_a_token_is_asked_for_and_others_are_warned_of(
    oarlock: Command, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("open-sesame\n")
    port = str(free_ports(1, "0.0.0.0")[0])
    done = oarlock(
        "serve", "-d", "sums", "--host", "0.0.0.0", "--token-file", "token", "--port", port, timeout=300
    )
    assert "other machines can reach this server, and it answers anyone who has the token" in done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("try: "))
    assert "open-sesame" not in line
    shell = subprocess.run(
        ["sh", "-c", line.removeprefix("try: ")], capture_output=True, text=True, timeout=120, check=False
    )
    assert json.loads(shell.stdout)["outputs"]["y"] == [0.0], shell
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask({"url": f"http://127.0.0.1:{port}", "name": "sums"}, 1, 2)


def test_run_goes_on_to_serving_if_the_score_is_good_enough(oarlock: Command, job: Path) -> None:
    port = free_ports(1)[0]
    with started(SCRIPT, "run", "--serve", "--set", f"serve.port={port}", str(job)) as client:
        assert client.stdout is not None
        for line in client.stdout:
            if "try: curl" in line:
                break
        assert ask({"url": f"http://127.0.0.1:{port}", "name": "summing"}, 1, 2) == 3
        client.send_signal(signal.SIGINT)
        client.wait(120)
    done = oarlock("run", "--serve", "--set", "serve.when=accuracy > 0.99")
    assert done.returncode == 4
    assert (
        "is not served: serve.when asks for accuracy > 0.99, and accuracy is 0.9, not > 0.99" in done.stderr
    )
    done = oarlock("run", "--serve", "--set", "serve.when=bleu > 30")
    assert "there is no score bleu; there is accuracy" in done.stderr


@contextlib.contextmanager
def _usual_port_taken() -> Iterator[None]:
    """By us, or by whoever has it already."""
    try:
        taken = socket.create_server(("127.0.0.1", 8000))
    except OSError:
        yield
        return
    with taken:
        yield
