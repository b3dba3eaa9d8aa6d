"""docs/cli.md names what there is, and nothing else."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

from oarlock.cli.group import VERBS
from tests.cli.verbs.test_verbs_looking import FOLDERS, STATE, TASK, TIME

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


def test_the_shape_of_a_run_is_documented() -> None:
    for names in (STATE, TASK, TIME, FOLDERS):
        assert all(f'"{name}"' in TEXT for name in names)
