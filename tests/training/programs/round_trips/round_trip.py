"""Through a real checkpoint folder and back: every program here goes through its cases.

python PROGRAM.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import Any

from oarlock.training.saving.session import CheckpointSession


def save(things: Mapping[str, Any]) -> None:
    """Into a folder of its own, which is the one to restore from until the next save."""
    os.environ["CHECKPOINT_DIR"] = tempfile.mkdtemp(dir=sys.argv[1])
    saving = CheckpointSession()
    assert saving.save(7, things, {}, None)
    saving.finish(60)
    saving.close()
    assert saving.step == 7, "it arrived"


def restore(fresh: dict[str, Any]) -> dict[str, Any]:
    saving = CheckpointSession()
    saving.restore(fresh)
    assert saving.step == 7
    return fresh


def through(things: Mapping[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    save(things)
    return restore(fresh)


def refused(things: Mapping[str, Any], fresh: dict[str, Any]) -> str:
    """In which words the one does not fit the other."""
    save(things)
    try:
        restore(fresh)
    except ValueError as error:
        text = str(error)
        what, why, advice = text.split("\n")
        assert what.startswith("step-0000000007-g1 in "), text
        assert what.endswith(" does not fit this program:"), text
        assert advice.startswith("  Use another folder"), text
        assert len(why) < 600, text
        return why.strip().rstrip(".")
    raise AssertionError("it fitted")


def unkeepable(thing: Any) -> str:
    try:
        save({"thing": thing})
    except TypeError as error:
        return str(error)
    raise AssertionError("it was kept")


def go_through(cases: Mapping[str, Any]) -> None:
    for name, case in list(cases.items()):
        if name.startswith("case_"):
            try:
                case()
                told = None
            except Exception:
                told = traceback.format_exc()
            print(json.dumps({"case": name, "told": told}), flush=True)
