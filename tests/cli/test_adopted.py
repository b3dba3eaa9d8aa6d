"""A run that somebody else sent decides neither which server sees this user's credentials nor which files of
this machine are read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from oarlock.checkpoints import bucket
from oarlock.cli.serving_session import model_source, serve_options
from oarlock.engines.engine import engine_called
from oarlock.engines.kubernetes.deployments import server_packing, server_record
from oarlock.engines.kubernetes.lifecycle import identity, submit
from oarlock.engines.kubernetes.manifests import packing
from oarlock.job.model import Job, Serve, Storage, to_data
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not bucket.is_here(), reason="obstore is not here")
PLACE: Any = SimpleNamespace(namespace="team", context="kind", server="https://127.0.0.1:1")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Whoever connects shows what it would have said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@pytest.fixture
def run(home: Path, tmp_path: Path, server: socket.socket) -> RunFolder:
    """Theirs, over, and adopted by an earlier command. It has all that could lead a client astray."""
    env = {**to(server), "AWS_REGION": "nowhere-1", "AWS_PROFILE": "p"}
    return recorded(tmp_path, env=env, storage=Storage(snapshots="s3://bucket/x"))


def recorded(folder: Path, sent_from: Path | None = None, **fields: Any) -> RunFolder:
    """A run that is over, of a job with these fields; it is adopted unless it was sent from a folder."""
    job = Job(name="theirs", program="train.py", **fields)

    def fill(draft: RunFolder) -> None:
        written = f"# {folder}, as it was sent from {folder}\n{yaml.safe_dump(to_data(job))}"
        identity.write(draft, PLACE, "1234", sent_from=sent_from)
        submit.fill(draft, written, packing.spec_for(job, folder, "theirs"), 1.0)
        ended = {**draft.state().to_data(), "state": "succeeded"}
        draft.result_file.write_text(json.dumps(ended))

    return runs.create("theirs", fill, "theirs")


def to(server: socket.socket) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
        "AWS_ALLOW_HTTP": "true",
    }


def mine(**more: str) -> dict[str, str]:
    settings = {"AWS_ACCESS_KEY_ID": "MINE", "AWS_SECRET_ACCESS_KEY": "sesame", "AWS_SESSION_TOKEN": "open"}
    return {**os.environ, "KUBECONFIG": "/nowhere", **settings, **more}


def is_called(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("words", [["pull", "--snapshots"], ["pull", "--snapshots", "--what", "checkpoints"]])
def test_its_settings_reach_nobody(
    words: list[str], oarlock: Any, run: RunFolder, server: socket.socket
) -> None:
    done = oarlock(*words, "theirs", env=mine())
    assert done.returncode != 0
    assert "theirs was not sent from here" in done.stderr
    port = server.getsockname()[1]
    assert (
        f"set AWS_ALLOW_HTTP=true, AWS_ENDPOINT_URL=http://127.0.0.1:{port}, AWS_PROFILE in your"
        in done.stderr
    )
    assert not is_called(server)


def test_what_this_user_sets_counts(oarlock: Any, run: RunFolder, server: socket.socket) -> None:
    address = "http://127.0.0.1:1"  # nobody answers there, which is soon known
    env = mine(AWS_ENDPOINT_URL=address, AWS_ALLOW_HTTP="true", AWS_PROFILE="mine")
    done = oarlock("pull", "--snapshots", "theirs", env=env)
    assert done.returncode != 0
    assert "cannot be reached: " in done.stderr
    assert address in done.stderr
    assert not is_called(server)


def test_a_record_says_that_it_was_sent_from_here(run: RunFolder) -> None:
    place = json.loads((run.path / "cluster.json").read_text())
    assert not run.is_from_here, "whatever a comment in its job says"
    (run.path / "cluster.json").write_text(json.dumps({**place, "sent_from": "/somewhere"}))
    assert run.is_from_here
    (run.path / "cluster.json").write_text("[]")
    assert not run.is_from_here
    (run.path / "cluster.json").unlink()
    assert run.is_from_here, "it runs on this machine"


def test_a_region_chooses_no_host(oarlock: Any, home: Path, tmp_path: Path, server: socket.socket) -> None:
    env = {"AWS_REGION": f"x@127.0.0.1:{server.getsockname()[1]}/"}  # https://s3.REGION.amazonaws.com
    recorded(tmp_path, env=env, storage=Storage(snapshots="s3://bucket/x"))
    done = oarlock("pull", "--snapshots", "theirs", env=mine())
    assert "if you trust it, set AWS_REGION in your environment" in done.stderr
    assert not is_called(server)


SERVING = [["serve", "theirs"], ["predict", "-m", "theirs", "[1]"]]


@pytest.mark.parametrize("words", SERVING)
def test_its_env_reaches_no_process_of_this_machine(
    words: list[str], oarlock: Any, home: Path, tmp_path: Path, server: socket.socket
) -> None:
    env = {"THEIRS": "1", "LD_PRELOAD": "/theirs.so"}
    recorded(tmp_path, env=env, serve=Serve(env=to(server)), storage=Storage(model="s3://bucket/x"))
    address = "http://127.0.0.1:1"  # of this user; nobody answers there, which is soon known
    own = mine(AWS_ENDPOINT_URL=address, AWS_ALLOW_HTTP="true")
    own.pop("LD_PRELOAD", None)
    done = oarlock(*words, env=own, timeout=60)
    assert done.returncode != 0
    assert "theirs was not sent from here, so its env has no effect on this machine" in done.stderr
    assert "if you trust it, set LD_PRELOAD, THEIRS in your environment" in done.stderr
    assert not is_called(server)


@pytest.mark.parametrize("words", [["serve"], ["predict", "[1]"]])
def test_nobody_serves_it_without_naming_it(
    words: list[str], oarlock: Any, home: Path, tmp_path: Path, server: socket.socket
) -> None:
    run = recorded(tmp_path, env=to(server), storage=Storage(model="s3://bucket/x"))
    assert run.state().state == "succeeded"
    done = oarlock(*words, env=mine(), timeout=60)
    assert done.returncode != 0
    assert "no run has a model yet" in done.stderr
    assert not is_called(server)


@pytest.mark.parametrize("words", SERVING)
def test_its_model_is_no_file_of_this_machine(
    words: list[str], oarlock: Any, home: Path, tmp_path: Path
) -> None:
    recorded(tmp_path, storage=Storage(model=f"file://{tmp_path}/own"))
    done = oarlock(*words, env=mine(), timeout=60)
    assert done.returncode != 0
    assert "theirs was not sent from here, and its model is not in a bucket: file:///" in done.stderr


EVERYWHERE = [
    *SERVING,
    ["serve", "--on", "kubernetes", "theirs"],
    ["predict", "--on", "kubernetes", "-m", "theirs", "[1]"],
    ["render", "--as", "deployment", "theirs"],
    ["render", "--as", "kserve", "theirs"],
]


@pytest.mark.parametrize(
    ("is_absolute", "words"), [*((True, words) for words in EVERYWHERE), (False, EVERYWHERE[0])]
)
def test_its_predict_names_no_file_of_this_machine(
    is_absolute: bool, words: list[str], oarlock: Any, home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "netrc"  # in the current folder, too, which is not the job's
    file.write_text("print('sesame')\n")
    predict = str(file) if is_absolute else file.name
    recorded(tmp_path, serve=Serve(predict=predict), storage=Storage(model="s3://bucket/x"))
    done = oarlock(*words, env=mine(), timeout=60)
    assert done.returncode != 0
    assert (
        "theirs was not sent from here, so its serve.predict chooses no file of this machine" in done.stderr
    )
    assert "sesame" not in done.stdout + done.stderr


def test_this_user_may_name_a_file(oarlock: Any, home: Path, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("sesame\n")
    (tmp_path / "mine.py").write_text("print('mine')\n")
    recorded(tmp_path, serve=Serve(predict=str(tmp_path / "netrc")), storage=Storage(model="s3://bucket/x"))
    words = ["render", "--as", "deployment", "--set", "serve.predict=mine.py", "theirs"]
    done = oarlock(*words, env=mine())
    assert done.returncode == 0, done.stderr
    assert "print('mine')" in done.stdout
    assert "sesame" not in done.stdout


def test_no_record_names_a_file_outside_the_folder_of_its_job(
    oarlock: Any, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("sesame\n")
    folder = tmp_path / "job"
    folder.mkdir()
    recorded(
        folder, sent_from=folder, serve=Serve(predict="../netrc"), storage=Storage(model="s3://bucket/x")
    )
    done = oarlock("render", "--as", "deployment", "theirs", env=mine())
    assert done.returncode != 0
    assert f"serve.predict: ../netrc is outside {folder}" in done.stderr
    assert "sesame" not in done.stdout


def test_the_record_of_its_server_does_not_make_it_trusted(home: Path, tmp_path: Path) -> None:
    recorded(tmp_path, env={"LD_PRELOAD": "/theirs.so"}, storage=Storage(model="s3://bucket/x"))
    engine = engine_called("kubernetes")
    order = serve_options.order(model_source.find("theirs", engine), engine, {})
    assert order.job.env, "its pods need it"
    parcel = server_packing.pack(order, "theirs-serve")
    assert not server_record.create(parcel, PLACE, order.sent_from, order.settings).is_from_here
    parcel = server_packing.pack(order, "mine-serve")
    own = server_record.create(parcel, PLACE, tmp_path, order.settings)
    assert own.is_from_here
    server_record.renew(own, parcel, order.settings, is_job_ours=order.is_job_ours)
    assert not own.is_from_here, "it has the job of theirs now"
