"""`oarlock inspect` of a local run: a shell in its record on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_a_command_runs_in_the_record(oarlock: Any, records: Path) -> None:
    done = oarlock("inspect", "good-run", "--", "sh", "-c", "pwd; cat model/weights; exit 7")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines() == [str(records / "runs" / "good-run"), "1 2 3"]


def test_as_json(oarlock: Any, records: Path) -> None:
    done = oarlock("inspect", "good-run", "--json", "--", "sh", "-c", "ls model; echo oh >&2; exit 7")
    assert json.loads(done.stdout) == {"code": 7, "stdout": "weights\n", "stderr": "oh\n"}
    assert done.returncode == 7
    done = oarlock("inspect", "good-run", "--json", "--", "sh", "-c", "kill -9 $$")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (137, 137)
    done = oarlock("inspect", "good-run", "--json", "--", "nosuch")
    assert (done.returncode, json.loads(done.stdout)["stderr"]) == (
        127,
        "oarlock: nosuch: No such file or directory\n",
    )


def test_a_shell_reads_what_is_piped_in(oarlock: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    done = oarlock("inspect", "good-run", input="basename $PWD\nexit 3\n")
    assert (done.returncode, done.stdout) == (3, "good-run\n")


def test_a_terminal_is_the_shells(terminal: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    shell = terminal("inspect", "good-run")
    shell.type("echo $((6 * 7)) $(stty size)\r")
    shell.until("42 24 100")
    shell.type("exit 3\r")
    assert shell.end() == 3


def test_what_cannot_be_is_told(oarlock: Any, records: Path) -> None:
    for words, code, said in (
        (("good-run", "--", "nosuch"), 127, "oarlock: nosuch: No such file or directory"),
        (("good-run", "--json"), 2, "--json is for a COMMAND"),
        (
            ("good-run", "--image", "busybox"),
            2,
            "good-run ran on this machine; --image is for a run on a cluster",
        ),
        (("good-run", "ls"), 2, "a command comes after --: oarlock inspect [RUN] -- COMMAND"),
        (("nobody", "--", "ls"), 2, "there is no run called nobody"),
    ):
        done = oarlock("inspect", *words)
        assert done.returncode == code
        assert said in done.stderr
        assert len(done.stderr.splitlines()) <= 2
