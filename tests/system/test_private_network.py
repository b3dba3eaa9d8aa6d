"""`network: private`: the tasks reach each other and nobody else, and nobody reaches them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.system import private_network
from tests.support import listeners
from tests.support.gangs import STEPS, Gang, until_gone
from tests.support.strangers import is_denied, needs_root

Start = Callable[..., Gang]

# Everybody listens on all interfaces, as TensorFlow does, and waits for the other.
PROGRAM = """
import json, os, socket, time
addresses = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
own = int(os.environ["OARLOCK_INDEX"])
server = socket.create_server(("", int(addresses[own].rpartition(":")[2])))
host, _, port = addresses[1 - own].rpartition(":")
while True:
    try:
        socket.create_connection((host, int(port))).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
server.accept()
with open(f"met-{own}", "w") as file:
    file.write(" ".join(name for _, name in socket.if_nameindex()))
"""


@pytest.fixture
def allowed() -> None:
    if (why := private_network.refusal()) is not None:
        pytest.skip(f"this machine does not allow network: private ({why})")


@pytest.mark.usefixtures("allowed")
def test_nobody_else_reaches_its_tasks(start: Start, oarlock: Any, tmp_path: Path) -> None:
    gang = start(PROGRAM + STEPS + "train(10**6)", network="private").until_step(1)
    agent = gang.state.agent or 0
    ports = {int(address.rpartition(":")[2]) for address in listeners.of_tree(gang.pid("worker-0"))}
    assert ports
    assert all(
        is_denied((host, port)) for host in ("127.0.0.1", listeners.outside()) for port in ports if host
    )
    assert all(map(listeners.is_loopback, listeners.of_tree(agent) - _of_tasks(gang)))
    connect = f"import socket; socket.create_connection(('127.0.0.1', {ports.pop()})); print('in')"
    done = oarlock("exec", gang.run.name, "--", sys.executable, "-c", connect)
    assert (done.stdout, done.returncode) == ("in\n", 0), done.stderr
    tasks = [gang.pid(task) for task in ("worker-0", "worker-1")]
    os.kill(agent, 9)
    until_gone(tasks)


def _of_tasks(gang: Gang) -> set[str]:
    return {address for task in ("worker-0", "worker-1") for address in listeners.of_tree(gang.pid(task))}


@needs_root
@pytest.mark.usefixtures("allowed")
def test_who_is_not_root_keeps_himself_in_it(oarlock: Any, tmp_path: Path) -> None:
    """As root without the right to make one: the way of all other users."""
    tell = "print('user', os.getuid(), os.getgid(), os.readlink('/proc/self/ns/user'))"
    (tmp_path / "program.py").write_text(PROGRAM + tell)
    done = oarlock(
        *("run", "-n", "2", "--set", "network=private", "program.py"), preexec_fn=_give_up_administration
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {(tmp_path / f"met-{index}").read_text() for index in (0, 1)} == {"lo"}
    assert (tmp_path / "met-0").stat().st_uid == os.getuid()
    assert f"user {os.getuid()} {os.getgid()} user:" in done.stdout
    assert str(Path("/proc/self/ns/user").readlink()) not in done.stdout


def _give_up_administration() -> None:
    """CAP_SYS_ADMIN, for this process and all that it starts."""
    assert ctypes.CDLL(None, use_errno=True).prctl(24, 21, 0, 0, 0) == 0


def test_it_is_for_one_machine(oarlock: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    done = oarlock("run", "-n", "2", "--machines", "2", "--set", "network=private", "program.py")
    assert done.returncode == 2
    assert done.stderr == "oarlock: with network: private all tasks are on one machine; remove --machines\n"


LIMITED = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh"]
REFUSED = (
    "this machine does not allow network: private "
    "(user.max_net_namespaces or user.max_user_namespaces is reached)"
)


@pytest.fixture
def limits() -> None:
    if shutil.which("unshare") is None or subprocess.run([*LIMITED, "true"], check=False).returncode != 0:
        pytest.skip("needs user namespaces")


@pytest.mark.usefixtures("limits")
def test_a_machine_that_does_not_allow_it_is_told_before_the_start(home: Path, tmp_path: Path) -> None:
    done = _limited("from oarlock.__main__ import main", tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"oarlock: {REFUSED}; remove it from the job, or allow user namespaces\n"
    assert not list((home / "runs").glob("*"))


@pytest.mark.usefixtures("limits")
def test_no_task_starts_without_it(home: Path, tmp_path: Path) -> None:
    """Should the machine change its mind after it was asked."""
    done = _limited(
        "from oarlock.system import private_network; private_network.refusal = lambda: None\n"
        "from oarlock.__main__ import main",
        tmp_path,
    )
    assert done.returncode == 1, done.stdout
    assert REFUSED in done.stderr
    assert "started" not in done.stdout
    assert not (tmp_path / "ran").exists()


def _limited(before: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text("open('ran', 'w')")
    words = [sys.executable, "-c", f"{before}\nimport sys; sys.exit(main())"]
    return subprocess.run(
        [*LIMITED, *words, "run", "--set", "network=private", "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
