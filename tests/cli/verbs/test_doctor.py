"""`oarlock doctor`, with frameworks that are there, broken, slow and missing: small ones made here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.engines.local import framework_imports
from tests.support.small_programs import write

FAKES = {
    "tensorflow": """
        print("noise on stdout")
        __version__ = "9.1"
        class config:
            list_physical_devices = staticmethod(lambda kind: ["a", "b"])
    """,
    "keras": "raise ImportError('libfoo.so.1: cannot open shared object file')",
    "torch": "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
    "jax": "__version__ = '9.2'",
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "fakes"
    folder.mkdir()
    for name, text in FAKES.items():
        write(folder / f"{name}.py", text)
    others = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{others}" if others else str(folder))


def test_it_tells_what_works_and_why_not(oarlock: Any, home: Path, fakes: None) -> None:
    done = oarlock("doctor", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {"oarlock", "python", "ok", "checks", "frameworks"}
    assert told["ok"] is True
    assert {check["name"] for check in told["checks"]} == {
        *("system", "cores", "memory", "GPUs", "OARLOCK_HOME", "ports", "network", "/dev/shm"),
    }
    assert all(set(check) == {"name", "state", "detail", "fix"} for check in told["checks"])
    found = {one["name"]: one for one in told["frameworks"]}
    assert all(
        set(one) == {"name", "state", "detail", "fix", "version", "seconds", "gpus"} for one in found.values()
    )
    assert (found["tensorflow"]["state"], found["tensorflow"]["version"]) == ("ok", "9.1")
    assert found["tensorflow"]["gpus"] == 2
    assert found["keras"]["state"] == "broken"
    assert found["keras"]["detail"] == "ImportError: libfoo.so.1: cannot open shared object file"
    assert found["torch"]["detail"] == "killed by SIGILL: it was built for a newer processor"
    assert (found["jax"]["state"], found["jax"]["gpus"]) == ("ok", None)
    assert not home.exists()


def test_a_home_that_cannot_be_written_is_a_fault(
    oarlock: Any, fakes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "file" / "below"))
    done = oarlock("doctor")
    assert done.returncode == 1
    assert "set OARLOCK_HOME to a folder that you can write to" in done.stdout
    assert "ok       tensorflow    9.1, imported in" in done.stdout


def test_a_missing_framework_comes_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert framework_imports.probe("torch")["state"] == "missing"
    assert framework_imports.probe("torch")["fix"] == "pip install 'oarlock[torch]'"
    assert framework_imports.probe("keras")["fix"] == "pip install keras"


def test_a_framework_that_takes_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "endless_framework.py", "import time\nwhile True: time.sleep(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    told = framework_imports.probe("endless_framework", patience=0.5)
    assert (told["state"], told["detail"]) == ("broken", "importing it takes longer than 0.5 s")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2")
def test_it_warns_of_tensorflow_where_there_is_a_network(oarlock: Any, fakes: None, tmp_path: Path) -> None:
    """In a network of its own, first with loopback alone, then with an interface more."""

    def told(*before: str) -> str:
        script = " && ".join(["ip link set lo up", *before, "exec oarlock doctor"])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        [line] = [line for line in done.stdout.splitlines() if " network " in line]
        return " ".join(line.split())

    assert told() == "ok network runs listen on 127.0.0.1 only"
    assert told("ip link add out0 type veth peer name off0", "ip link set out0 up") == (
        "warning network TensorFlow listens on every interface, including out0, and runs requests from "
        "anyone who connects; "
        "network: private in the job keeps others out"
    )
