"""`oarlock` itself: help, unknown verbs and options, what is imported, how it ends."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock.cli.group import VERBS
from tests.support.commands import SCRIPT

HEAVY = ("tensorflow", "keras", "torch", "jax", "numpy", "lightkube", "kubernetes", "rich", "yaml", "msgspec")


@pytest.mark.parametrize("name", VERBS)
def test_the_table_of_verbs_says_what_the_verb_says(name: str) -> None:
    verb = importlib.import_module(f"oarlock.cli.verbs.{name}").verb
    assert verb.name == name
    assert (verb.help or "").splitlines()[0] == VERBS[name]


def test_help_names_every_verb(oarlock: Any) -> None:
    done = oarlock("--help")
    assert done.returncode == 0
    for name, text in VERBS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", done.stdout, re.MULTILINE), done.stdout


def test_alone_it_shows_the_help(oarlock: Any) -> None:
    assert oarlock().stdout == oarlock("--help").stdout


@pytest.mark.parametrize("words", [["--help"], ["ps"], ["ps", "--json"]])
def test_help_and_ps_load_nothing_heavy(words: list[str], records: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", SCRIPT, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & set(HEAVY)


def test_an_unknown_verb_gets_the_nearest(oarlock: Any) -> None:
    done = oarlock("stauts")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "oarlock: no such verb: stauts; did you mean status?"


def test_an_unknown_option_gets_the_nearest(oarlock: Any) -> None:
    done = oarlock("run", "--wrokers", "2", "train.py")
    assert done.returncode == 2
    assert re.match(r"oarlock: .*--wrokers.*--workers", done.stderr)
    assert "Traceback" not in done.stderr


def test_python_dash_m_is_the_same(home: Path) -> None:
    words = [sys.executable, "-m", "oarlock", "version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert re.fullmatch(r"oarlock \d+\.\d+\.\d+\n", done.stdout)


def test_a_reader_that_leaves_is_not_an_error(records: Path) -> None:
    """`oarlock events | head -0`: the pipe is closed before anything is written."""
    for words in (["events", "good-run"], ["logs", "good-run"], ["ps"], ["schema"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [SCRIPT, *words], stdout=write, stderr=subprocess.PIPE, timeout=300, check=False
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b""), words


def test_a_home_that_cannot_be_written_is_one_line(
    oarlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("OARLOCK_HOME", str(tmp_path / "file" / "below"))
    done = oarlock("run", "train.py")
    assert done.returncode == 1
    assert done.stderr.startswith("oarlock: ")
    assert len(done.stderr.splitlines()) == 1


def test_run_names_are_completed(records: Path) -> None:
    env = {**os.environ, "_OARLOCK_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for line, expected in (
        ("oarlock logs a", {"again-run", "abrupt-run"}),
        ("oarlock delete go", {"good-run"}),
    ):
        done = subprocess.run(
            [SCRIPT], env={**env, "COMP_WORDS": line}, capture_output=True, text=True, timeout=300
        )
        assert {item.partition(",")[2] for item in done.stdout.split()} == expected


def test_verbs_are_completed(home: Path) -> None:
    env = {**os.environ, "_OARLOCK_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "oarlock st"}
    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert {item.partition(",")[2] for item in done.stdout.split()} == {"stacks", "status", "stop"}
