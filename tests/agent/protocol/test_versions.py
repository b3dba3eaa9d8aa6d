"""Agents of two versions in one run: each side says so in one sentence, and neither breaks."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.agent.net import control
from oarlock.agent.protocol.wire import LENGTH, Unpacker, pack
from tests.support.members import Leader, leading

LATER = {"version": 3, "challenge": "of another form", "more": 1}


@pytest.mark.parametrize(
    "greeting",
    [
        pack({"version": 3, "who": "in another form"}) + bytes(32),
        pack({"hello": {"name": "machine-1"}, "nonce": "n", "proof": "0" * 64}),
    ],
    ids=["later", "earlier"],
)
def test_the_leading_agent_says_that_somebody_is_of_another_version(tmp_path: Path, greeting: bytes) -> None:
    with leading(tmp_path, machines=2) as leader:
        with socket.create_connection(leader.address, timeout=300) as line:
            line.sendall(greeting)
            while line.recv(4096):
                pass  # the challenge, then the end
        leader.until(lambda: leader.state().notes, "note")
        [note] = leader.state().notes
        assert re.search(
            r"it speaks version [13] of the agents' protocol, this one 2: start all agents", note
        )


def test_a_following_agent_says_that_its_leader_is_of_another_version(tmp_path: Path) -> None:
    with (
        leading(tmp_path, machines=2, rendezvous=5.0) as leader,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        agent = follow(leader, f"127.0.0.1:{other.getsockname()[1]}")
        other.settimeout(60)
        with other.accept()[0] as line:
            line.sendall(pack(LATER))
            line.settimeout(60)
            data = b""
            while len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
                data += line.recv(4096) or pytest.fail("no greeting")
        [said] = Unpacker().feed(data)
        assert said["version"] == 2, "so that the other side can say it, too"
        other.close()
        told = agent.communicate(timeout=300)[0]
        assert agent.returncode == 1
        assert len(re.findall("it speaks version 3 of the agents' protocol, this one 2", told)) == 1, told
        assert "Traceback" not in told


def test_a_client_says_that_the_agent_is_of_another_version(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        (tmp_path / "address").write_text(f"127.0.0.1:{other.getsockname()[1]}")
        (tmp_path / "token").write_text("token")
        script = "import sys; from pathlib import Path; from oarlock.agent.net import control\n"
        script += "try: control.ask(Path(sys.argv[1]), {})\nexcept control.UnreachableError as e: print(e)"
        client = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        other.settimeout(60)
        with other.accept()[0] as line:
            line.sendall(pack(LATER))
            told = client.communicate(timeout=300)[0]
    assert told.startswith("its agent does not answer: it speaks version 3 of the agents' protocol")


def test_unknown_fields_of_a_later_agent_are_ignored(tmp_path: Path) -> None:
    with leading(tmp_path, machines=2) as leader:
        answer = control.ask(leader.folder, {"ask": "stacks", "colour": {"depth": [1]}})
        assert answer == {"ok": True}, json.dumps(answer)


def follow(leader: Leader, address: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "oarlock.agent", str(leader.folder), "--machine", "1", "--join", address]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
