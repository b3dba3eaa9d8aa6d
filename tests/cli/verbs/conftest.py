"""A run that the tests of several verbs act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.small_programs import ENDLESS, has_said, write
from tests.support.waiting import eventually


@pytest.fixture
def living(oarlock: Command, tmp_path: Path) -> RunFolder:
    """A run that does not end until it is stopped."""
    write(tmp_path / "train.py", ENDLESS)
    oarlock("run", "-d", "--name", "living", "train.py")
    run = runs.find("living")
    eventually(lambda: has_said(run, "here I am"), "sign of life")
    return run
