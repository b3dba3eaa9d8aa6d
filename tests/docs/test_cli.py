"""docs/cli.md names what there is, and nothing else."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest

from oarlock.cli.group import VERBS

Command = Callable[..., "CompletedProcess[str]"]
TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def options(verb: str) -> set[str]:
    command = importlib.import_module(f"oarlock.cli.verbs.{verb}").verb
    return {name for param in command.params if isinstance(param, click.Option) for name in param.opts}


def test_every_verb_is_documented() -> None:
    assert re.findall(r"^\| `([a-z]+)[` ]", TEXT.partition("## run")[0], re.MULTILINE) == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_documented(verb: str) -> None:
    missing = {name for name in options(verb) if not re.search(rf"[`/, \[]{re.escape(name)}\b", TEXT)}
    assert not missing


def test_no_option_is_documented_that_is_not_there() -> None:
    known = {"--help", "--version", "--epochs", *(name for verb in VERBS for name in options(verb))}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) <= known


def test_the_shape_of_a_run_is_documented(oarlock: Command, records: Path) -> None:
    run = json.loads(oarlock("status", "bad-run", "--json").stdout)
    for shape in (run, run["time"], run["folders"], run["failure"], run["tasks"][0]):
        assert [name for name in shape if f'"{name}"' not in TEXT] == []
