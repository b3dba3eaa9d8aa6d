"""A run that somebody else sent does not decide which server sees this user's credentials."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oarlock.checkpoints import bucket
from oarlock.engines.kubernetes.lifecycle import identity, submit
from oarlock.engines.kubernetes.manifests import packing
from oarlock.job.model import Job, Storage
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not bucket.is_here(), reason="obstore is not here")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Whoever connects shows what it would have said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@pytest.fixture
def run(home: Path, tmp_path: Path, server: socket.socket) -> RunFolder:
    """Theirs, over, and adopted by an earlier command. It has all that could lead a client astray."""
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    env = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "nowhere-1",
        "AWS_PROFILE": "p",
    }
    job = Job(name="theirs", program="train.py", env=env, storage=Storage(snapshots="s3://bucket/x"))
    place: Any = SimpleNamespace(namespace="team", context="kind", server="https://127.0.0.1:1")

    def fill(draft: RunFolder) -> None:
        written = f"# {tmp_path}, as it was sent from {tmp_path}\nname: theirs\nprogram: train.py\n"
        identity.write(draft, place, "1234")
        submit.fill(draft, written, packing.spec_for(job, tmp_path, "theirs"), 1.0)
        (draft.path / "result.json").write_text(json.dumps({"run": "theirs", "state": "succeeded"}))

    return runs.create("theirs", fill, "theirs")


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
